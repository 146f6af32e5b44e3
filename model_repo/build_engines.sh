#!/usr/bin/env bash
# Written by trtbuild from deployment.yaml: fetches, converts and compiles the engines of this repository.
#
#   ./build_engines.sh           every step in nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3 (docker)
#   ./build_engines.sh --here    every step on this machine: inside that container, or with TensorRT-LLM 1.2.1
#   ./build_engines.sh --print   only prints the commands
#
# Can be stopped and started at any time: a step whose inputs are unchanged and whose product is whole is not
# repeated. Work lies beside the repository, in TRTBUILD_WORK (default: ../<repository>.build).
# HF_TOKEN, where a model needs one, is taken from the environment and never written anywhere.
set -euo pipefail

repo=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
work_root=$(realpath -m -- "${TRTBUILD_WORK:-$repo.build}")
image=nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3
planned_sm=8.9
place=docker

die() {
  printf 'build_engines: %s\n' "$*" >&2
  exit 1
}

case ${1:-} in
  "") ;;
  --here) place=here ;;
  --print) place=print ;;
  *) die "unknown option $1; there are --here and --print" ;;
esac

# in_place WHERE FOLDER COMMAND…: runs a command in FOLDER: in the container with a GPU (gpu) or without (cpu), or
# on the host with trtbuild (host).
in_place() {
  local gpu=$1 folder=$2
  shift 2
  if [[ $place == here || ($gpu == host && $place != print) ]]; then
    (cd -- "$folder" && "$@")
    return
  fi
  local options=(--rm --ulimit memlock=-1 --ulimit stack=67108864 --shm-size=1g)
  # Files belong to whoever runs this; HOME and caches must then be writable for that user.
  options+=(--user "$(id -u):$(id -g)" -e HOME=/work/home -e HF_HOME=/work/home/hf -e PYTHONDONTWRITEBYTECODE=1)
  options+=(-e HF_TOKEN -e HF_ENDPOINT -e OMPI_ALLOW_RUN_AS_ROOT=1 -e OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
  [[ $gpu == gpu ]] && options+=(--gpus all)
  options+=(-v "$folder:/work" -w /work)
  local mount
  for mount in ${mounts[@]+"${mounts[@]}"}; do options+=(-v "$mount:$mount:ro"); done
  if [[ $place == print ]]; then
    printf '%q ' docker run "${options[@]}" "$image" "$@"
    printf '\n'
    return
  fi
  mkdir -p -- "$folder/home"
  docker run "${options[@]}" "$image" "$@"
}

# whole FOLDER PATTERN…: whether every pattern matches at least one file there that is not empty.
whole() {
  local folder=$1 pattern file found
  shift
  [[ -d $folder ]] || return 1
  for pattern in "$@"; do
    found=
    for file in "$folder"/$pattern; do [[ -s $file ]] && found=1; done
    [[ -n $found ]] || return 1
  done
}

# Checks values in a product's JSON: tools go on with a warning where they could not do what was asked.
read -r -d '' check_facts <<'PYTHON' || true
import json, sys
folder, *facts = sys.argv[1:]
for fact in facts:
    name, path, wanted = json.loads(fact)
    value = json.load(open(f"{folder}/{name}"))
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    if value != wanted:
        sys.exit(f"{folder}/{name}: {path} is {value!r}, and {wanted!r} was asked for")
PYTHON

# step FOLDER NAME PRODUCT GPU KEY "PATTERNS" "FACTS" COMMAND…: one step, unless it is done. Sets `last`.
# All steps but the fetch get the GPU: TensorRT-LLM's tools do not start without its driver.
step() {
  local folder=$1 name=$2 product=$3 gpu=$4 key=$5 patterns facts
  read -r -a patterns <<<"$6"
  mapfile -t facts < <(printf '%s' "$7")
  shift 7
  last=$(printf '%s\n%s\n' "$key" "$last" | sha256sum | cut -d' ' -f1)
  if [[ $place == print ]]; then
    in_place "$gpu" "$folder" "$@"
    return
  fi
  if [[ $(cat -- "$folder/$product.done" 2>/dev/null) == "$last" ]] && whole "$folder/$product" "${patterns[@]}"; then
    printf '%s: %s is done\n' "${folder##*/}" "$name"
    return
  fi
  printf '%s: %s …\n' "${folder##*/}" "$name"
  rm -rf -- "$folder/$product.done" "${folder:?}/$product.partial"
  if ! in_place "$gpu" "$folder" "$@" 2>&1 | tee "$folder/$name.log"; then
    die "${folder##*/}: $name failed; its output is in $folder/$name.log, and ends with: $(tail -n 3 -- "$folder/$name.log")"
  fi
  whole "$folder/$product.partial" "${patterns[@]}" ||
    die "${folder##*/}: $name ended well, but $product lacks one of: ${patterns[*]} (see $folder/$name.log)"
  if [[ -n ${facts[*]-} ]]; then
    in_place cpu "$folder" python3 -c "$check_facts" "$product.partial" "${facts[@]}" ||
      die "${folder##*/}: $name made something else than was asked for"
  fi
  rm -rf -- "${folder:?}/$product"
  mv -- "$folder/$product.partial" "$folder/$product"
  printf '%s\n' "$last" >"$folder/$product.done"
}

# local_source FOLDER PATH: weights that are on this machine already.
local_source() {
  local folder=$1 path=$2 file
  [[ -f $path/config.json ]] || die "$path has no config.json; this script was written for the weights there"
  # A folder of the Hugging Face cache holds links to files elsewhere: their folders are mounted as well.
  mapfile -t mounts < <(for file in "$path"/*; do dirname -- "$(readlink -f -- "$file")"; done | sort -u)
  mounts+=("$path")
  [[ $place == print ]] && return
  mkdir -p -- "$folder"
  ln -sfn -- "$path" "$folder/source"
  last=$(find -L "$path" -maxdepth 1 -type f -printf '%f %s %T@\n' | sort | sha256sum | cut -d' ' -f1)
}

# install FOLDER TARGET FILE…: puts files in place whole, the last one last; TARGET is a model's version folder.
install_files() {
  local folder=$1 target=$2 file
  shift 2
  mkdir -p -- "$target"
  for file in "$@"; do
    [[ -e $folder/$file && ! $folder/$file -ef $target/$file ]] || continue
    rm -f -- "$target/.$file.partial"
    ln -- "$folder/$file" "$target/.$file.partial" 2>/dev/null || cp -- "$folder/$file" "$target/.$file.partial"
    mv -f -- "$target/.$file.partial" "$target/$file"
  done
}

# install_folder FOLDER TARGET: the same for a whole folder, once for each content.
install_folder() {
  local folder=$1 target=$2
  [[ $(cat -- "$target.key" 2>/dev/null) == "$last" && -d $target ]] && return
  rm -rf -- "$target.key" "$target.partial"
  mkdir -p -- "$(dirname -- "$target")"
  cp -rlL -- "$folder" "$target.partial" 2>/dev/null || {
    rm -rf -- "$target.partial"
    cp -rL -- "$folder" "$target.partial"
  }
  rm -rf -- "$target"
  mv -- "$target.partial" "$target"
  printf '%s\n' "$last" >"$target.key"
}

if [[ $place != print ]]; then
  mkdir -p -- "$work_root"
  exec 9>"$work_root/.lock"
  flock -n 9 || die "another build is running in $work_root"
  # The engine's kernels are those of one compute capability.
  sm=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sort -u | tr '\n' ' ') || sm=
  sm=${sm% }
  [[ -n $sm ]] || die "nvidia-smi shows no GPU; engines are compiled on the GPU that runs them"
  [[ $sm == "$planned_sm" ]] ||
    die "the plan is for compute capability $planned_sm and this machine has $sm: plan again with --gpu"
fi

# --- qwen-7b: Qwen/Qwen2.5-7B-Instruct-AWQ, awq
# taking Qwen/Qwen2.5-7B-Instruct-AWQ (awq int4 g128), published for Qwen/Qwen2.5-7B-Instruct; --calibrate makes our own from the 16-bit weights
folder=$work_root/qwen-7b
mounts=()
last=
[[ $place == print ]] || mkdir -p -- "$folder"
step "$folder" fetch source cpu e3c269df1e7954e9d2fc81b8d02830f6a620c425a16d331a6002cc50a58cc11c \
  'config.json *.safetensors' \
  '' \
  python3 -c 'import sys; from huggingface_hub import snapshot_download; snapshot_download(sys.argv[1], revision=sys.argv[2], local_dir=sys.argv[3], allow_patterns=sys.argv[4:])' Qwen/Qwen2.5-7B-Instruct-AWQ main source.partial '*.safetensors' '*.json' '*.txt' '*.jinja' '*.model' '*.tiktoken'
step "$folder" convert checkpoint gpu 4de69f644a3692308dd09c35ab1b423df62cfec0e7287cf9b40e5c48b684e02b \
  'config.json rank0.safetensors' \
  '["config.json", "quantization.quant_algo", "W4A16_GPTQ"]
["config.json", "quantization.kv_cache_quant_algo", null]
["config.json", "mapping.tp_size", 1]' \
  python3 /app/tensorrt_llm/examples/models/core/qwen/convert_checkpoint.py --model_dir source --output_dir checkpoint.partial --dtype float16 --tp_size 1
step "$folder" compile engine gpu 980aea89d60ab1812514336944e3471dbb8358bdeeb796a6377ba8db9ccd4107 \
  'config.json rank0.engine' \
  '["config.json", "pretrained_config.mapping.tp_size", 1]
["config.json", "build_config.max_batch_size", 32]
["config.json", "build_config.max_num_tokens", 2048]
["config.json", "build_config.max_seq_len", 2560]
["config.json", "build_config.plugin_config.tokens_per_block", 32]
["config.json", "build_config.plugin_config.use_paged_context_fmha", true]' \
  trtllm-build --checkpoint_dir checkpoint --output_dir engine.partial --max_batch_size 32 --max_input_len 2048 --max_seq_len 2560 --max_num_tokens 2048 --max_beam_width 1 --kv_cache_type paged --tokens_per_block 32 --gpt_attention_plugin float16 --gemm_plugin float16 --context_fmha enable --remove_input_padding enable --use_paged_context_fmha enable --use_fp8_context_fmha disable --workers 1 --log_level info --monitor_memory
if [[ $place != print ]]; then
  [[ -s $folder/source/tokenizer.json || -s "$repo"/qwen-7b/1/tokenizer/tokenizer.json ]] ||
    die "qwen-7b: the weights come without tokenizer.json; save a fast tokenizer into $folder/source"
  install_files "$folder/source" "$repo"/qwen-7b/1/tokenizer tokenizer.json tokenizer_config.json generation_config.json special_tokens_map.json chat_template.jinja chat_template.json config.json
  install_files "$folder/engine" "$repo"/qwen-7b_engine/1 rank0.engine config.json
  printf '%s: %s in %s\n' qwen-7b engine qwen-7b_engine/1
fi
[[ $place == print ]] || printf 'All engines are built. Start the server with ./launch.sh\n'
