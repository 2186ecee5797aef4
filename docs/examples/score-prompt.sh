#!/bin/sh
# Asks how likely each token of a whole prompt is.
set -eu
: "${ENGY_API_KEY:?is not set}"
url=${ENGY_BASE_URL:-http://127.0.0.1:8080}

answer=$(curl -sS -m 300 "$url/v1/completions" \
  -H "Authorization: Bearer $ENGY_API_KEY" \
  -H 'Content-Type: application/json' \
  -d '{"model":"glm-5.2","prompt":"Rivers run to the sea","max_tokens":1,"temperature":0,"echo":true,"logprobs":1}')
printf '%s\n' "$answer"

# The answer begins with the prompt. Nothing comes before its first token, so
# that has no probability.
printf '%s\n' "$answer" | grep -q '"text":"Rivers run to the sea'
printf '%s\n' "$answer" | grep -q '"token_logprobs":\[null,-[0-9]'
printf '%s\n' "$answer" | grep -q '"text_offset":\[-1,-1,'
