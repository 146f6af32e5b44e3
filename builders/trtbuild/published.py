"""Names of published quantised checkpoints: each is a model of the catalogue in one format."""

from __future__ import annotations

from trtbuild.build.routes import sibling_checkpoint
from trtbuild.catalog.formats import find_format
from trtbuild.catalog.models import ModelRecord, Sibling, find_sibling
from trtbuild.errors import CatalogError, ModelSourceError
from trtbuild.plan.sources import model_folder
from trtbuild.spec import DeploymentSpec


def catalogued(spec: DeploymentSpec) -> tuple[DeploymentSpec, list[str]]:
    """The spec with each published quantised checkpoint as its model in its format, and what was
    renamed.

    Raises:
        ModelSourceError: a checkpoint that nothing here reads, or one in another format than was asked for.
    """
    models, notes = [], []
    for llm in spec.models:
        listed = None if model_folder(llm.model) or llm.weights else find_sibling(llm.model)
        if listed is not None:
            record, sibling = listed
            form = find_format(llm.quant).name if llm.quant != "auto" else None
            held = _sibling_format(record, sibling)
            if form not in (None, held):
                raise ModelSourceError(
                    f"{sibling.repo} is in {held}; what is quantised once is not quantised again to {form}",
                    f"--model {record.id} --quant {form}",
                    f"--model {record.id} --quant {held}",
                )
            notes.append(f"{sibling.repo} is {record.id} in {held}")
            models.append(llm.model_copy(update={"model": record.id, "quant": held}))
        else:
            models.append(llm)
    return spec.model_copy(update={"models": tuple(models)}), notes


def _sibling_format(record: ModelRecord, sibling: Sibling) -> str:
    try:
        return find_format(sibling_checkpoint(record, sibling).format).name
    except (CatalogError, ModelSourceError) as error:
        raise ModelSourceError(
            f"{sibling.repo} ({sibling.method}) is a checkpoint of {record.id} that nothing here reads: "
            f"{error.message}",
            f"--model {record.id} with a --quant of `trtbuild formats`",
        ) from error
