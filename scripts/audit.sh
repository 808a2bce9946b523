#!/bin/sh
# Known vulnerabilities in what we depend on: Python packages as locked, npm packages as published.
# A database that cannot be reached is said loudly and is no failure; a vulnerability is one.
set -u
bin=$1
status=0

skip() {
  echo "AUDIT SKIPPED: $1" >&2
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# In an environment of its own: what audits shall not change what is audited.
"$bin/python" -m venv "$work/venv"
if "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check 'pip-audit==2.10.*' 2>"$work/pip.log"; then
  out=$("$work/venv/bin/python" -m pip_audit --disable-pip --require-hashes -r requirements/base.lock 2>&1)
  code=$?
  unknown=$(echo "$out" | grep -c "could not be audited")
  case $out in
    *"Found "*"known vulnerabilit"*)
      echo "$out"
      status=1
      ;;
    *) if [ $code -ne 0 ]; then skip "pip-audit could not ask its database (exit code $code)"; fi ;;
  esac
  if [ "$unknown" -ne 0 ]; then
    skip "pip-audit's database does not know $unknown of the locked packages"
  elif [ $code -eq 0 ]; then
    echo "Python packages: no known vulnerabilities"
  fi
else
  skip "pip-audit cannot be installed here: $(tail -n 1 "$work/pip.log")"
fi

if command -v npm >/dev/null; then
  echo '{"name": "audit", "version": "1.0.0", "dependencies": {"@litertjs/core": "*"}}' \
    >"$work/package.json"
  if (cd "$work" && npm install --package-lock-only --ignore-scripts --no-fund >/dev/null 2>&1); then
    out=$(cd "$work" && npm audit 2>&1)
    code=$?
    echo "$out"
    if [ $code -ne 0 ]; then
      case $out in
        *vulnerabilit*) status=1 ;;
        *) skip "npm audit could not ask its registry (exit code $code)" ;;
      esac
    fi
  else
    skip "npm cannot reach its registry"
  fi
else
  skip "npm is not installed"
fi
exit $status
