#!/bin/sh
# Continues a raw prompt, to which no chat template is applied.
set -eu
: "${ENGY_API_KEY:?is not set}"
url=${ENGY_BASE_URL:-http://127.0.0.1:8080}

ask() {
  answer=$(curl -sS -m 300 -w ' %{http_code}' "$url/v1/completions" \
    -H "Authorization: Bearer $ENGY_API_KEY" \
    -H 'Content-Type: application/json' \
    -d '{"model":"glm-5.2","max_tokens":64,"temperature":0,"stream":'"$1"',
         "prompt":"[gMASK]<sop><|user|>Name a river.<|assistant|><think></think>"}')
  printf '%s\n' "$answer"
}

ask false
printf '%s\n' "$answer" | grep -q '"object":"text_completion".*"choices":\[{"text":"[^"].* 200$'
# It is not streamed.
ask true
printf '%s\n' "$answer" | grep -q 'stream.* 400$'
