#!/bin/sh
# Runs a line of the shell on a host, as ssh does for mpirun: agent.sh HOST LINE...
scripts=$(dirname "$0")
host=$1
shift
exec "$scripts/host.sh" "$host" sh -c "$*"
