#!/usr/bin/env bash
# Written by trtbuild from deployment.yaml: fetches, converts and compiles the engines of this repository.
#
#   ./build_engines.sh           every step in nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3 (docker)
#   ./build_engines.sh --here    every step on this machine: inside that container, or with TensorRT-LLM 1.2.1
#   ./build_engines.sh --print   only prints the commands
#
# Can be stopped and started at any time: a step whose inputs are unchanged and whose product is whole is not
# repeated. Work lies beside the repository, in TRTBUILD_WORK (default: ../<repository>.build); `trtbuild build` works
# in the same folder and takes over what this script has made, and the other way round.
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
  local -A mounted=() # podman refuses the same destination twice
  for mount in ${mounts[@]+"${mounts[@]}"}; do
    [[ -n ${mounted[$mount]-} ]] || options+=(-v "$mount:$mount:ro")
    mounted[$mount]=1
  done
  if [[ $place == print ]]; then
    printf '%q ' docker run "${options[@]}" "$image" "$@"
    printf '\n'
    return
  fi
  mkdir -p -- "$folder/home"
  # A container outlives a client that is killed: it goes before another writes to the same folder.
  local name
  name=trtbuild-$label-$(printf '%s' "$folder" | sha256sum | cut -c 1-12)
  docker rm --force "$name" >/dev/null 2>&1 || true
  docker run --name "$name" "${options[@]}" "$image" "$@"
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

# What the keys of steps name beside what is known in advance: the weights' commit or content, the adapters' content,
# and the packages that quantise on the CPU.
declare -A identity

# step FOLDER NAME PRODUCT GPU KEY "IDENTITIES" "PATTERNS" "FACTS" COMMAND…: one step, unless it is done. Sets `last`.
# All steps but the fetch get the GPU: TensorRT-LLM's tools do not start without its driver.
step() {
  local folder=$1 name=$2 product=$3 gpu=$4 key=$5 names patterns facts each
  read -r -a names <<<"$6"
  read -r -a patterns <<<"$7"
  mapfile -t facts < <(printf '%s' "$8")
  shift 8
  if [[ $place == print ]]; then
    in_place "$gpu" "$folder" "$@"
    return
  fi
  if [[ $gpu == host && -z ${identity[cpu-tools]-} ]]; then
    # Where it was done before, perhaps elsewhere, trtbuild need not be here.
    identity[cpu-tools]=$(python3 -c 'from trtbuild.build.cache import cpu_tools; print(cpu_tools())' 2>/dev/null ||
      cat -- "$folder/cpu-tools" 2>/dev/null) || die "$name runs on this host with trtbuild: pip install 'trtbuild[build]'"
    printf '%s\n' "${identity[cpu-tools]}" >"$folder/cpu-tools"
  fi
  last=$({ printf '%s\n' "$key"; for each in "${names[@]}"; do printf '%s\n' "${identity[$each]}"; done; } | sha256sum)
  last=${last%% *}
  if [[ $(cat -- "$folder/$product.done" 2>/dev/null) == "$last" ]] && whole "$folder/$product" "${patterns[@]}"; then
    printf '%s: %s is done\n' "${folder##*/}" "$name"
    return
  fi
  printf '%s: %s …\n' "${folder##*/}" "$name"
  label=$name
  rm -rf -- "$folder/$product.done" "${folder:?}/$product.partial"
  mkdir -p -- "$folder/logs"
  if ! in_place "$gpu" "$folder" "$@" 2>&1 | tee "$folder/logs/$name.log"; then
    die "${folder##*/}: $name failed; its output is in $folder/logs/$name.log, and ends with: $(tail -n 3 -- "$folder/logs/$name.log")"
  fi
  whole "$folder/$product.partial" "${patterns[@]}" ||
    die "${folder##*/}: $name ended well, but $product lacks one of: ${patterns[*]} (see $folder/logs/$name.log)"
  if [[ -n ${facts[*]-} ]]; then
    in_place cpu "$folder" python3 -c "$check_facts" "$product.partial" "${facts[@]}" ||
      die "${folder##*/}: $name made something else than was asked for"
  fi
  rm -rf -- "${folder:?}/$product"
  mv -- "$folder/$product.partial" "$folder/$product"
  printf '%s\n' "$last" >"$folder/$product.done"
}

# pin FOLDER REPOSITORY REVISION: sets `commit`, asked of the hub once and remembered.
pin() {
  local folder=$1 repository=$2 revision=$3 memo
  commit=$revision label=fetch
  [[ $revision =~ ^[0-9a-f]{40}$ || $place == print ]] || {
    memo=$(cat -- "$folder/source.pin" 2>/dev/null) || memo=
    if [[ $memo == "$repository $revision "* ]]; then
      commit=${memo##* }
    else
      commit=$(in_place cpu "$folder" python3 -c "$ask_commit" "$repository" "$revision" | tail -n 1) || commit=
      [[ $commit =~ ^[0-9a-f]{40}$ ]] || die "the hub does not say what $revision of $repository is: ${commit:-no answer}"
      printf '%s %s %s\n' "$repository" "$revision" "$commit" >"$folder/source.pin"
    fi
  }
  identity[source]=$repository@$commit
}
ask_commit='import sys; from huggingface_hub import model_info; print(model_info(sys.argv[1], revision=sys.argv[2]).sha)'

# own_folder FOLDER NAME PATH: weights or an adapter that are on this machine already; known by content.
own_folder() {
  local folder=$1 name=$2 path=$3 file listing memo
  [[ -d $path ]] || die "$path is not here; this script was written for the files there"
  # A folder of the Hugging Face cache holds links to files elsewhere: their folders are mounted as well.
  while read -r file; do
    mounts+=("$file")
  done < <(for file in "$path"/*; do dirname -- "$(readlink -f -- "$file")"; done | sort -u)
  mounts+=("$path")
  [[ $place == print ]] && return
  mkdir -p -- "$folder/$(dirname -- "$name")"
  [[ -L $folder/$name ]] || rm -rf -- "${folder:?}/$name"
  ln -sfn -- "$path" "$folder/$name"
  listing=$(find -L "$path" -maxdepth 1 -type f -printf '%f %s %T@\n' | LC_ALL=C sort | sha256sum)
  memo=$(cat -- "$folder/.${name//\//.}.sha256" 2>/dev/null) || memo=
  if [[ $memo != "${listing%% *} "* ]]; then
    memo=$(cd -- "$path" && find -L . -maxdepth 1 -type f -printf '%f\0' | LC_ALL=C sort -z | xargs -0 sha256sum -- | sha256sum)
    memo="${listing%% *} ${memo%% *}"
    printf '%s\n' "$memo" >"$folder/.${name//\//.}.sha256"
  fi
  identity[$name]=${memo##* }
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
identity=()
if [[ $place != print ]]; then
  mkdir -p -- "$folder"
  exec 9>"$folder/.lock" # trtbuild's own builds hold the same
  flock -n 9 || die "another build is running in $folder"
fi
[[ $place == print || ! -L $folder/source ]] || rm -f -- "$folder/source"
pin "$folder" Qwen/Qwen2.5-7B-Instruct-AWQ main
step "$folder" fetch source cpu 2d46f21a65be6b4ecdaa6ba043835712f32f0e91bcff90b8395a44b1c1ff95bb \
  source \
  'config.json *.safetensors' \
  '' \
  python3 -c 'import json, os, sys; from huggingface_hub import list_repo_files, snapshot_download; repo, commit, folder, *names = sys.argv[1:]; get = lambda names: snapshot_download(repo, revision=commit, local_dir=folder, allow_patterns=names); there = {name for name in list_repo_files(repo, revision=commit) if name.endswith('"'"'.safetensors'"'"') and '"'"'/'"'"' not in name}; get(names); index = os.path.join(folder, '"'"'model.safetensors.index.json'"'"'); wanted = set(json.load(open(index))['"'"'weight_map'"'"'].values()) if os.path.exists(index) else {name for name in there if name.startswith('"'"'model'"'"')} or there; get(sorted(wanted)); left = sorted(there - wanted); left and print('"'"'left in the repository, no part of the model:'"'"', *left)' Qwen/Qwen2.5-7B-Instruct-AWQ "$commit" source.partial '*.json' '*.txt' '*.jinja' '*.model' '*.tiktoken'
step "$folder" convert checkpoint gpu 7868e624025734c7ce1335a485926f5c601bd3d2d001717b648bd026ba919696 \
  source \
  'config.json rank0.safetensors' \
  '["config.json", "quantization.quant_algo", "W4A16_GPTQ"]
["config.json", "quantization.kv_cache_quant_algo", null]
["config.json", "mapping.tp_size", 1]' \
  python3 /app/tensorrt_llm/examples/models/core/qwen/convert_checkpoint.py --model_dir source --output_dir checkpoint.partial --dtype float16 --tp_size 1
step "$folder" compile engine gpu e33d86ebdb528a85f24ccec5f6a137c51bac1891e93ee6d6704cdaa823f7cfec \
  source \
  'config.json rank0.engine' \
  '["config.json", "pretrained_config.mapping.tp_size", 1]
["config.json", "build_config.max_batch_size", 32]
["config.json", "build_config.max_num_tokens", 544]
["config.json", "build_config.max_seq_len", 2560]
["config.json", "build_config.plugin_config.tokens_per_block", 32]
["config.json", "build_config.plugin_config.use_paged_context_fmha", true]' \
  trtllm-build --checkpoint_dir checkpoint --output_dir engine.partial --max_batch_size 32 --max_input_len 2048 --max_seq_len 2560 --max_num_tokens 544 --max_beam_width 1 --kv_cache_type paged --tokens_per_block 32 --gpt_attention_plugin float16 --gemm_plugin float16 --context_fmha enable --remove_input_padding enable --use_paged_context_fmha enable --use_fp8_context_fmha disable --workers 1 --log_level info --monitor_memory
if [[ $place != print ]]; then
  [[ -s $folder/source/tokenizer.json || -s "$repo"/qwen-7b/1/tokenizer/tokenizer.json ]] ||
    die "qwen-7b: the weights come without tokenizer.json; save a fast tokenizer into $folder/source"
  install_files "$folder/source" "$repo"/qwen-7b/1/tokenizer tokenizer.json tokenizer_config.json generation_config.json special_tokens_map.json chat_template.jinja chat_template.json config.json
  install_files "$folder/engine" "$repo"/qwen-7b_engine/1 rank0.engine config.json
  printf '%s: %s in %s\n' qwen-7b engine qwen-7b_engine/1
fi
[[ $place == print ]] || printf 'All engines are built. Start the server with ./launch.sh\n'
