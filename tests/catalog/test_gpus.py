import pytest

from trtbuild.catalog.gpus import all_gpus, find_gpu, mig_slices, unlisted_gpu
from trtbuild.errors import CatalogError

GIB = 1 << 30
MIB = 1 << 20


def test_all_gpus_are_there_with_their_sources() -> None:
    gpus = all_gpus()
    assert len(gpus) == 32
    assert all(gpu.source for gpu in gpus)
    assert len({gpu.name for gpu in gpus}) == 32


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("l4", "L4"),
        ("L40S", "L40S"),
        ("l40s", "L40S"),
        ("a10g", "A10G"),
        ("a10", "A10"),
        ("4090", "RTX-4090"),
        ("rtx 4090", "RTX-4090"),
        ("NVIDIA GeForce RTX 3090 Ti", "RTX-3090Ti"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM-80GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100-PCIe-40GB"),
        ("a100-sxm-80g", "A100-SXM-80GB"),
        ("A100 80 SXM", "A100-SXM-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("h20-96g", "H20-96GB"),
        ("NVIDIA GH200 480GB", "GH200-96GB"),
        ("gh200-144", "GH200-144GB"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-Pro-6000"),
        ("NVIDIA B200", "B200"),
        ("Tesla T4", "T4"),
    ],
)
def test_names_match_without_case_dashes_brand_or_trailing_b(written: str, name: str) -> None:
    match = find_gpu(written)
    assert match.gpu.name == name
    assert match.note == ""


@pytest.mark.parametrize(
    ("written", "name"), [("a100-80g", "A100-SXM-80GB"), ("A100-40GB", "A100-SXM-40GB"), ("h100", "H100-SXM")]
)
def test_a_missing_form_factor_takes_the_sxm_row_and_says_so(written: str, name: str) -> None:
    match = find_gpu(written)
    assert match.gpu.name == name
    assert "PCIe" in match.note


@pytest.mark.parametrize("written", ["a100", "h20", "gh200", "a100-sxm"])
def test_a_name_that_several_memory_sizes_share_lists_them(written: str) -> None:
    with pytest.raises(CatalogError) as caught:
        find_gpu(written)
    assert "write which" in caught.value.remedies[0]


def test_an_unknown_gpu_offers_the_nearest() -> None:
    with pytest.raises(CatalogError) as caught:
        find_gpu("rtx-4091")
    assert "RTX-4090" in caught.value.remedies[0]


def test_memory_is_what_tools_report_as_usable() -> None:
    assert find_gpu("l4").gpu.memory_bytes == 22 * GIB
    assert find_gpu("h100-sxm").gpu.memory_bytes == int(79.1 * GIB)
    # neither figure was found: 144 GiB less 3 %, marked as unverified
    gh200 = find_gpu("gh200-144gb").gpu
    assert gh200.memory_bytes == int(144 * GIB * 0.97)
    assert {"nvidia_smi_mib", "usable_gib"} <= set(gh200.unverified)


def test_a_card_that_is_not_listed_is_planned_by_what_nvidia_smi_says() -> None:
    card = unlisted_gpu(name="NVIDIA Foo 32GB", nvidia_smi_bytes=32_768 * MIB, sm="12.0")
    assert card.memory_bytes == int(32_768 * MIB * 0.98)
    assert card.capability == 12.0


@pytest.mark.parametrize(
    "written",
    [
        "A100-SXM-80GB:3g",
        "a100-sxm-80g 3g",
        "NVIDIA A100-SXM4-80GB MIG 3g.40gb",
        "a100-sxm-80g-3g.40gb",
        "a100-sxm-80gb/3g.40gb",
        "a100-sxm-80g-mig-3g.40gb",
        "a100-sxm-80g:3g.40gb+me",
    ],
)
def test_a_mig_slice_is_a_gpu_of_its_own(written: str) -> None:
    found = find_gpu(written).gpu
    assert (found.name, found.sm, found.mig_max, found.nvlink_gbs) == ("A100-SXM-80GB:3g", "8.0", 0, None)
    # 3 of 7 slices of 312 TFLOPS, half of 2,039 GB/s; nvidia-smi shows 39.25 GiB (MIG User Guide)
    assert found.fp16_tflops == pytest.approx(133.7, abs=0.1)
    assert found.mem_bw_gbs == pytest.approx(1019.5)
    assert 0.94 * 39.25 < found.memory_bytes / GIB <= 39.25
    assert find_gpu(found.name).gpu == found


def test_slices_that_a_gpu_has_not_are_refused() -> None:
    with pytest.raises(CatalogError, match="L4 has no MIG slice 1g"):
        find_gpu("l4:1g")
    with pytest.raises(CatalogError, match="no MIG slice 5g") as error:
        find_gpu("h100-sxm:5g")
    assert "H100-SXM:4g" in error.value.remedies[0]
    assert mig_slices(find_gpu("a30").gpu) == (1, 2)


@pytest.mark.parametrize(
    ("written", "name", "share"),
    [
        ("h100-sxm:1g.10gb", "H100-SXM:1g", 1 / 8),
        ("h100-sxm:1g.20gb", "H100-SXM:1g.20gb", 2 / 8),
        ("h200-1g.18gb", "H200:1g", 1 / 8),
        ("h200-1g.35gb", "H200:1g.35gb", 2 / 8),
        ("b200-1g.23gb", "B200:1g", 1 / 8),
        ("b200:2g.45gb", "B200:2g", 2 / 8),
        ("h100-nvl:3g.47gb", "H100-NVL:3g", 4 / 8),
        ("a30-1g.6gb", "A30:1g", 2 / 8),
        ("rtx-pro-6000-2g.48gb", "RTX-Pro-6000:2g", 4 / 8),
    ],
)
def test_a_mig_profile_has_the_memory_that_its_name_says(written: str, name: str, share: float) -> None:
    found, whole = find_gpu(written).gpu, find_gpu(written.replace(":", "-").rsplit("-", 1)[0]).gpu
    assert found.name == name
    assert found.memory_bytes == pytest.approx(whole.memory_bytes * share * 0.95, rel=1e-6)
    assert find_gpu(name).gpu == found


@pytest.mark.parametrize(
    ("written", "part"),
    [
        ("h100:1g.40gb", "1g of it has about 10 GB or about 20 GB"),
        ("3g.40gb", "not of which GPU"),
        ("MIG 1g.10gb", "not of which GPU"),
        ("V100", "older than Turing"),
        ("Tesla V100-SXM2-16GB", "older than Turing"),
        ("GB10", "one memory"),
        ("DGX Spark", "one memory"),
        ("Jetson AGX Orin 64GB", "one memory"),
        ("MI300X", "NVIDIA's GPUs only"),
    ],
)
def test_what_cannot_be_planned_for_says_why_and_offers_no_other_gpu(written: str, part: str) -> None:
    with pytest.raises(CatalogError, match=part) as caught:
        find_gpu(written)
    assert not any("did you mean" in remedy for remedy in caught.value.remedies)
