#!/bin/sh
# Make a virtual environment of the first Python that is new enough. $PYTHON names another one.
set -eu
venv=$1

enough() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

if [ -x "$venv/bin/python" ] && enough "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  exit 0
fi

found=
for python in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
  if enough "$python"; then
    found=$python
    break
  fi
done
if [ -z "$found" ]; then
  echo "litertjs-sweep needs Python 3.11 or newer, and found ${PYTHON:-python3}:" \
    "$("${PYTHON:-python3}" --version 2>&1 || true)" >&2
  echo "Install one, or name it: make PYTHON=/path/to/python3.12 …" >&2
  exit 3
fi

make_venv() {
  rm -rf "$venv"
  "$found" -m venv "$venv"
}

if ! make_venv >/dev/null 2>&1; then
  # Debian and Ubuntu keep venv in a package of its own.
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    version=$("$found" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "python$version-venv"
  fi
  if ! make_venv; then
    rm -rf "$venv"
    echo "$found cannot make a virtual environment. On Debian and Ubuntu:" \
      "sudo apt-get install python3-venv" >&2
    exit 3
  fi
fi
