#!/bin/sh
# Asks how likely each token of an answer was, and which other was likeliest.
set -eu
: "${ENGY_API_KEY:?is not set}"
url=${ENGY_BASE_URL:-http://127.0.0.1:8080}

answer=$(curl -sS -m 300 "$url/v1/chat/completions" \
  -H "Authorization: Bearer $ENGY_API_KEY" \
  -H 'Content-Type: application/json' \
  -d '{"model":"glm-5.2","max_tokens":200,"logprobs":true,"top_logprobs":2,
       "reasoning_effort":"none","messages":[{"role":"user","content":"Yes or no?"}]}')
printf '%s\n' "$answer"

printf '%s\n' "$answer" | grep -q '"logprobs":{"content":\[{"token":.*"logprob":-*[0-9].*"top_logprobs":\[{'
