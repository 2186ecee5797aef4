#!/usr/bin/env bash
# Puts the PostgreSQL programs on this machine if it has none. Only the
# programs count: engy and the tests start a private server of their own, so
# nothing here starts one or makes a database.
set -euo pipefail

for dir in ${PATH//:/ } /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/libexec/postgresql* \
	/opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin; do
	if [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ]; then
		exit 0
	fi
done

# Someone else's server needs no programs here.
if [ -n "${DATABASE_URL:-}" ]; then
	exit 0
fi

install="apt-get update && apt-get install -y --no-install-recommends postgresql"
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
	echo "installing PostgreSQL"
	export DEBIAN_FRONTEND=noninteractive
	# The package would set up a server of its own; this keeps it from doing so.
	mkdir -p /etc/postgresql-common
	[ -e /etc/postgresql-common/createcluster.conf ] ||
		echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
	apt-get update -q
	apt-get install -q -y --no-install-recommends postgresql
	exit 0
fi

cat >&2 <<END
This needs PostgreSQL, and this machine has none. Type one of

    sudo sh -c '$install'      (Debian, Ubuntu)
    sudo dnf install -y postgresql-server           (Fedora, Red Hat)
    brew install postgresql@17                      (macOS)

or set DATABASE_URL to a server that is running.
END
exit 1
