#!/bin/sh
# Runs a command in a chroot that sees the repository, in the current folder: enter.sh CHROOT REPOSITORY COMMAND...
# The mounts belong to a namespace of their own and end with it.
set -e
if [ "$1" != --mounted ]; then
    exec unshare --mount -- "$0" --mounted "$@"
fi
chroot=$2 repository=$3
shift 3
for folder in /proc /sys /dev "$repository"; do
    mkdir -p "$chroot$folder"
    mount --rbind "$folder" "$chroot$folder"
done
exec chroot "$chroot" sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
