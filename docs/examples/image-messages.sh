#!/bin/sh
# Shows a model a picture, in the form of Messages.
set -eu
: "${ENGY_API_KEY:?is not set}"
url=${ENGY_BASE_URL:-http://127.0.0.1:8080}

# A picture of one pixel, unless a PNG is named: sh image-messages.sh photo.png
picture=iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==
if [ $# -gt 0 ]; then picture=$(base64 < "$1" | tr -d '\n'); fi

answer=$(curl -sS -m 300 "$url/v1/messages" \
  -H "x-api-key: $ENGY_API_KEY" \
  -H 'Content-Type: application/json' \
  -d @- <<END
{"model":"kimi-k3","max_tokens":4096,"messages":[{"role":"user","content":[
  {"type":"text","text":"What do you see?"},
  {"type":"image","source":{"type":"base64","media_type":"image/png","data":"$picture"}}]}]}
END
)
printf '%s\n' "$answer"

printf '%s\n' "$answer" | grep -q '"stop_reason":"end_turn"'
