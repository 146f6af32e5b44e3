"""Memory that belongs to no model's arithmetic, in bytes, each with its source."""

from __future__ import annotations

_MIB = 1 << 20

# Share of the device left free for fragmentation and for what no record shows (requirements: 10 to 15 %).
RESERVE_SHARE = 0.10

# A process that runs an engine: CUDA context, TensorRT, TensorRT-LLM's kernels and cuBLAS. TensorRT-LLM's
# docs/source/reference/memory.md (mem-0001 to mem-0006): 79.10 GiB total, 70.48 GiB free at KV allocation,
# 8,053 MiB itemised; the rest is 774 MiB.
ENGINE_PROCESS_BYTES = 775 * _MIB
# The same with PyTorch's CUDA graphs (mem-0113: 0.43 GiB).
TORCH_PROCESS_BYTES = ENGINE_PROCESS_BYTES + 440 * _MIB
# A process with a CUDA context but no engine: tritonserver beside its workers. Estimate.
SERVER_PROCESS_BYTES = 500 * _MIB
# NCCL and all-reduce buffers of one rank when tp > 1. Estimate, not measured here.
TP_COMMUNICATION_BYTES = 512 * _MIB

# Defaults of tritonserver for --cuda-memory-pool-byte-size and --pinned-memory-pool-byte-size
# (src/command_line_parser.cc).
CUDA_POOL_BYTES = 64 * _MIB
PINNED_POOL_BYTES = 256 * _MIB

# Processes in host RAM. Measured with server 2.51.0 and SmolLM2 on a CPU (private bytes): stubs of front and
# pre-processing 68 to 71 MiB, of post-processing 42; tritonserver 39 (resident 70); the engine's process
# before its weights 77 and its stub 20. With CUDA libraries tritonserver is larger: an estimate.
STUB_HOST_BYTES = 70 * _MIB
SERVER_HOST_BYTES = 600 * _MIB
# A worker of the LLM API: PyTorch, TensorRT-LLM's Python package and CUDA libraries. Estimate.
TORCH_HOST_BYTES = 2500 * _MIB
LOCAL_SERVER_HOST_BYTES = 120 * _MIB  # 99 measured with a language model and OCR
LOCAL_ENGINE_HOST_BYTES = 97 * _MIB

# /dev/shm of one Python instance where no container says otherwise (release 24.10, python_backend).
PYTHON_SHM_BYTES = 1 * _MIB
# Python instances of one LLM: front, two of pre-processing, post-processing.
STUBS_PER_LLM = 4

# OpenVINO's resident weights over their file's size: the graph's constants and the kernels' own copies.
# Measured with openvino-genai 2026.4.1 on GGUF Q4_1 files of 54, 98 and 165 MB (10, 30 and 60 layers of
# SmolLM2: 220, 401 and 671 MiB above the empty process, 4.27 a byte), and on the 98 MB one as IR (4.25).
LOCAL_WEIGHTS_EXPANSION = 4.28

# Vision pipelines of a single network.
MAX_PICTURE_PIXELS = 64 * _MIB  # above the 48-megapixel pictures of current phones
DECODE_BYTES_PER_PIXEL = 8  # four channels decoded beside three converted, with slack
# Masks in the size of the picture, measured on 16 megapixels: 4.3 of a class map with 16-bit classes, 12.4 of
# one thing that fills the picture (its scores are floats).
CLASS_MASK_BYTES_PER_PIXEL = 5
THING_MASK_BYTES_PER_PIXEL = 13
ENCODED_PICTURES_BYTES = 32 * _MIB  # of one request in /dev/shm
VISION_BATCH_SIZE = 8
VISION_QUEUE_DELAY_US = 2000
VISION_DECODERS = 2
VISION_STAGE_HOST_BYTES = 70 * _MIB  # numpy, Pillow and Triton's stub
# Beside the weights: a session as such, kernels' own copies of the weights, and how much more than the
# tensors that are live at once the arena holds.
VISION_SESSION_BYTES = 48 * _MIB
VISION_PACKED_WEIGHTS = 1.0
VISION_ARENA_SHARE = 1.5
