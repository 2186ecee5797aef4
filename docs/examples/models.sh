#!/bin/sh
# Lists what is served now: each model and what it takes. No key is needed.
set -eu
url=${ENGY_BASE_URL:-http://127.0.0.1:8080}

answer=$(curl -sS -m 60 "$url/v1/models")
printf '%s\n' "$answer" | sed 's/{"id":/\n&/g' |
  sed -n 's/^{"id":"\([^"]*\)".*"input_modalities":\(\[[^]]*\]\).*/\1 \2/p'

printf '%s\n' "$answer" | grep -q '^{"object":"list","data":\[{"id":".*"input_modalities":\[.*"text"'
printf '%s\n' "$answer" | grep -q '"pricing":{"prompt":"[0-9.]*","completion":"[0-9.]*"'
