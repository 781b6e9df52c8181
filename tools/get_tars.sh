#!/bin/sh
# Install the tar programs of Debian that are missing and may be installed:
# tests/tar/test_archives.py packs with each of them, and compares what they read with what we read.
set -eu
missing=
for pair in bsdtar:libarchive-tools busybox:busybox cpio:cpio pax:pax; do
    command -v "${pair%:*}" > /dev/null || missing="$missing ${pair#*:}"
done
if [ -z "$missing" ]; then exit 0; fi
if [ "$(id -u)" != 0 ]; then
    echo "get_tars: not root; install the packages$missing yourself" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
# shellcheck disable=SC2086 (one word a package)
apt-get -qq install --yes --no-install-recommends $missing > /dev/null
