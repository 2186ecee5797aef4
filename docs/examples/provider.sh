#!/bin/sh
# Says which workers may serve a request.
set -eu
: "${ENGY_API_KEY:?is not set}"
url=${ENGY_BASE_URL:-http://127.0.0.1:8080}

ask() {
  answer=$(curl -sS -m 300 -w ' %{http_code}' "$url/v1/chat/completions" \
    -H "Authorization: Bearer $ENGY_API_KEY" \
    -H 'Content-Type: application/json' \
    -d '{"model":"glm-5.2","provider":'"$1"',"messages":[{"role":"user","content":"hello"}]}')
  printf '%s\n' "$answer"
}

# The list of models tells where each is served.
region=$(curl -sS -m 60 "$url/v1/models/glm-5.2" | sed -n 's/.*"regions":\["\([a-z]*\)".*/\1/p')
ask '{"region_only":["'"$region"'"]}'
printf '%s\n' "$answer" | grep -q '"finish_reason":"stop".* 200$'
# Nobody meets this.
ask '{"region_exclude":["eu","us","cn","apac","other"]}'
printf '%s\n' "$answer" | grep -q ' 503$'
# And nothing is there.
ask '{"region_only":["mars"]}'
printf '%s\n' "$answer" | grep -q 'region_only.* 400$'
