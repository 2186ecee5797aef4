#!/bin/sh
# Asks how likely the last tokens of a prompt are, given the ones before.
set -eu
: "${ENGY_API_KEY:?is not set}"
url=${ENGY_BASE_URL:-http://127.0.0.1:8080}

# The prompt is token ids, here of nothing in particular: yours come from the
# model's own tokenizer. The span starts at the third token.
answer=$(curl -sS -m 300 "$url/v1/completions" \
  -H "Authorization: Bearer $ENGY_API_KEY" \
  -H 'Content-Type: application/json' \
  -d '{"model":"glm-5.2","prompt":[70001,70002,70003,70004,70005],"logprob_start_len":2,"max_tokens":1,"temperature":0}')
printf '%s\n' "$answer"

# One number for each token of the span, and the ids to tell which is which.
number='-?[0-9][-+.0-9eE]*'
printf '%s\n' "$answer" |
  grep -qE '"logprobs":\{"token_logprobs":\['"$number,$number,$number"'\],"token_ids":\[70003,70004,70005\]\}'
printf '%s\n' "$answer" | grep -q '"usage":{"prompt_tokens":5,"completion_tokens":1,'
