#!/bin/sh
# Runs a command on a host, which is a network namespace with a host name: host.sh HOST COMMAND...
# Each step replaces the process, so the command's process is that of this script.
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c 'echo "$0" >/proc/sys/kernel/hostname && exec "$@"' "$host" "$@"
