#!/bin/sh
# Install Debian's Chromium where it is missing and may be installed: the tests of `wids browse`
# drive it. It takes minutes, so `.ci/run` starts this first and waits for it last.
set -eu
if command -v chromium > /dev/null; then exit 0; fi
if [ "$(id -u)" != 0 ]; then
    echo 'get_chromium: not root; install the package chromium yourself' >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install --yes --no-install-recommends chromium fonts-dejavu-core > /dev/null
