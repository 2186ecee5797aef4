#!/bin/sh
# Shows which pictures are refused: linked ones, and those for a model that only reads.
set -eu
: "${ENGY_API_KEY:?is not set}"
url=${ENGY_BASE_URL:-http://127.0.0.1:8080}

# ask MODEL ADDRESS WORDS: the answer is a 400 whose text has the words.
ask() {
  answer=$(curl -sS -m 60 -w ' %{http_code}' "$url/v1/chat/completions" \
    -H "Authorization: Bearer $ENGY_API_KEY" \
    -H 'Content-Type: application/json' \
    -d '{"model":"'"$1"'","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"'"$2"'"}}]}]}')
  printf '%s\n' "$answer"
  printf '%s\n' "$answer" | grep -q "$3"'.* 400$'
}

ask kimi-k3 https://example.com/photo.png inline
ask kimi-k3 'data:text/html;base64,PGI+' inline
ask glm-5.2 'data:image/png;base64,iVBORw0KGgo=' 'glm-5.2.*image'
