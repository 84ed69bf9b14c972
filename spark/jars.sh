#!/bin/bash
# Fetches Spark's Kafka connector jars through the ordinary Maven client and checks them against
# jars.sha256.  Usage: jars.sh [DIRECTORY]   (default: .cache/spark-jars in the checkout).
# Safe to repeat; with the jars already there it only checks them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
target=${1:-$here/../.cache/spark-jars}
mkdir -p "$target"
target=$(cd "$target" && pwd)

complete() { (cd "$target" && sha256sum --check --status "$here/jars.sha256" 2>/dev/null); }

if ! complete; then
  command -v mvn >/dev/null || { echo "jars.sh: mvn is not installed (Debian: maven)" >&2; exit 1; }
  said=$(mktemp) # Maven colours even its silence; stdout holds the folder and nothing else
  trap 'rm -f "$said"' EXIT
  timeout 540 mvn -B -q -C -f "$here/jars.pom.xml" \
    org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DexcludeTransitive=true -DoutputDirectory="$target" >"$said" 2>&1 || { cat "$said" >&2; exit 1; }
  complete || { echo "jars.sh: the jars in $target do not match jars.sha256" >&2; exit 1; }
fi
echo "$target"
