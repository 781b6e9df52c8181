#!/bin/sh
# Install Debian's Chromium and Firefox where they are missing and may be installed: the tests of
# `wids browse` drive them. It takes minutes, so `.ci/run` starts this first and waits for it last.
set -eu
has_firefox() { command -v firefox-esr > /dev/null || command -v firefox > /dev/null; }
if command -v chromium > /dev/null && has_firefox; then exit 0; fi
if [ "$(id -u)" != 0 ]; then
    echo 'get_chromium: not root; install the packages chromium and firefox-esr yourself' >&2
    command -v chromium > /dev/null
    exit
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
if ! command -v chromium > /dev/null; then
    apt-get -qq install --yes --no-install-recommends chromium fonts-dejavu-core > /dev/null
fi
# Its tests are few, and skipped without it.
if ! has_firefox && ! apt-get -qq install --yes --no-install-recommends firefox-esr > /dev/null; then
    echo 'WARNING: no Firefox could be installed; the page is tested in Chromium alone' >&2
fi
