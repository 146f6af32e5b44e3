#!/usr/bin/env bash
# Written by trtbuild from deployment.yaml: starts Triton for this repository.
#
#   ./launch.sh           in a container of nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3 (docker), on the loopback address
#   ./launch.sh --here    on this machine: inside that container, on the loopback address
#   ./launch.sh --inside  the same on every address of the container; for compose.yaml, which publishes to loopback
#   ./launch.sh --print   only prints the command
#
# Ports: HTTP_PORT (8000), GRPC_PORT (8001), METRICS_PORT (8002). Clients of other machines belong behind a proxy
# that knows who they are; Triton's own restrictions are not made for that. TRTBUILD_CONTAINER names the container,
# TRTBUILD_GPUS the GPUs it sees (all, or ids such as 0,1). `trtbuild serve` runs this and watches over it.
set -euo pipefail

repo=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
cd -- "$repo" # engine paths in the configurations are relative to the repository
http_port=${HTTP_PORT:-8000} grpc_port=${GRPC_PORT:-8001} metrics_port=${METRICS_PORT:-8002}
image=trtbuild-tritonserver:26.07-vision
place=docker

die() {
  printf 'launch: %s\n' "$*" >&2
  exit 1
}

case ${1:-} in
  "") ;;
  --here) place=here ;;
  --inside) place=inside ;;
  --print) place=print ;;
  *) die "unknown option $1; there are --here, --inside and --print" ;;
esac

# A key that nobody keeps: these interfaces are off.
key=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
[[ $place == here ]] && address=127.0.0.1 || address=0.0.0.0 # inside a container; docker publishes to 127.0.0.1
options=(
  '--disable-auto-complete-config'
  '--model-repository=.'
  '--model-control-mode=none'
  '--exit-timeout-secs=30'
  '--metrics-config=histogram_latencies=true'
  '--grpc-keepalive-time=30000'
  '--grpc-keepalive-timeout=20000'
  '--grpc-keepalive-permit-without-calls=true'
  '--grpc-http2-min-recv-ping-interval-without-data=5000'
  '--grpc-max-response-pool-size=4096'
  '--cuda-memory-pool-byte-size=0:67108864'
  '--backend-config=python,thread-pool-size=32'
  # Two servers on one machine must not share their regions.
  "--backend-config=python,shm-region-prefix-name=${TRTBUILD_SHM_PREFIX:-trtbuild_${grpc_port}_}"
  "--http-address=$address" "--http-port=$http_port"
  "--grpc-address=$address" "--grpc-port=$grpc_port"
  "--metrics-address=$address" "--metrics-port=$metrics_port"
  "--grpc-restricted-protocol=model-repository,shared-memory,trace,logging:x-disabled=$key"
  "--http-restricted-api=model-repository,shared-memory,trace,logging:x-disabled=$key"
)
server=(/opt/tritonserver/bin/tritonserver "${options[@]}")
environment=(
  "TRTBUILD_GRPC_ADDRESS=127.0.0.1:$grpc_port"
  PYTHONDONTWRITEBYTECODE=1
)

# need WAY_OUT PATH…: ends with the files that are missing, and what brings them.
need() {
  local way_out=$1 path missing=()
  shift
  for path in "$@"; do [[ -e $path ]] || missing+=("$path"); done
  [[ -z ${missing[*]-} || $place == print ]] || die "missing: ${missing[*]}. $way_out"
}
need 'Build the engines first: ./build_engines.sh' qwen-7b_engine/1/config.json qwen-7b/1/tokenizer/tokenizer.json
need 'Get them first: pip install --no-deps rapidocr==3.10.0; then write the repository again (README.md has the command), or copy the files there' ocr_det/1/model.onnx ocr_cls/1/model.onnx ocr_rec/1/model.onnx

if [[ $place == here || $place == inside ]]; then
  exec env "${environment[@]}" "${server[@]}"
fi

gpus=${TRTBUILD_GPUS:-all}
[[ $gpus == all ]] || gpus="\"device=$gpus\""
name=${TRTBUILD_CONTAINER:-trtbuild-$grpc_port}
docker_options=(
  --rm --init --name "$name" --gpus "$gpus" --ulimit memlock=-1 --ulimit stack=67108864 --stop-timeout 60
  --shm-size=425721856 --user "$(id -u):$(id -g)" -e HOME=/tmp
  -v "$repo:/repository:ro" -w /repository
  -p "127.0.0.1:$http_port:$http_port" -p "127.0.0.1:$grpc_port:$grpc_port" -p "127.0.0.1:$metrics_port:$metrics_port"
)
for variable in "${environment[@]}"; do docker_options+=(-e "$variable"); done
# With NVIDIA's multi-process service on the host, kernels of several processes run at the same time.
mps=${CUDA_MPS_PIPE_DIRECTORY:-/tmp/nvidia-mps}
[[ -e $mps/control ]] && docker_options+=(--ipc=host -v "$mps:$mps" -e "CUDA_MPS_PIPE_DIRECTORY=$mps")

if [[ $place == print ]]; then
  printf '%q ' docker run "${docker_options[@]}" "$image" "${server[@]}"
  printf '\n'
  exit
fi
docker image inspect "$image" >/dev/null 2>&1 || docker build -t "$image" - <Dockerfile
docker rm --force "$name" >/dev/null 2>&1 || true # of a launch whose client was killed
exec docker run "${docker_options[@]}" "$image" "${server[@]}"
