#!/bin/sh
# Shows which calls for log-probabilities are refused.
set -eu
: "${ENGY_API_KEY:?is not set}"
url=${ENGY_BASE_URL:-http://127.0.0.1:8080}

# ask WORDS MEMBERS: the answer is a 400 whose text has the words.
ask() {
  answer=$(curl -sS -m 300 -w ' %{http_code}' "$url/v1/completions" \
    -H "Authorization: Bearer $ENGY_API_KEY" \
    -H 'Content-Type: application/json' -d '{"model":"glm-5.2",'"$2"'}')
  printf '%s\n' "$answer"
  printf '%s\n' "$answer" | grep -q "$1"'.* 400$'
}

# A prompt of 1,026 tokens. Of it, 1,024 can be scored in a call and 1,025 not.
ids=$(awk 'BEGIN { for (i = 0; i < 1026; i++) printf "%s70001", i ? "," : "" }')
ask 1025 '"max_tokens":1,"logprob_start_len":1,"prompt":['"$ids"']'
ask logprob_start_len '"max_tokens":1,"echo":true,"logprobs":1,"prompt":['"$ids"']'
answer=$(curl -sS -m 300 "$url/v1/completions" \
  -H "Authorization: Bearer $ENGY_API_KEY" \
  -H 'Content-Type: application/json' \
  -d '{"model":"glm-5.2","max_tokens":1,"logprob_start_len":2,"prompt":['"$ids"']}')
printf '%s\n' "$answer" | grep -q '"logprobs":{"token_logprobs":\['

# None is not a number of tokens, nor of likeliest tokens.
ask max_tokens '"max_tokens":0,"echo":true,"logprobs":1,"prompt":"hello"'
ask logprobs '"max_tokens":1,"echo":true,"logprobs":0,"prompt":"hello"'
