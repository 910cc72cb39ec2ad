#!/usr/bin/env bash
# Writes one CycloneDX list of components for each service, of what its binary is built
# from, to out/sbom. Arguments: folders of services.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOWORK=off CGO_ENABLED=0

mkdir -p .local/bin out/sbom
go -C tools build -o ../.local/bin/cyclonedx-gomod github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
for service in "$@"; do
  to=out/sbom/$(basename "$service").cdx.json
  .local/bin/cyclonedx-gomod app -json -licenses -noserial -output "$to" "$service" 2>"$to.log" || { cat "$to.log" >&2; exit 1; }
  rm "$to.log"
  printf '%s: %d components\n' "$to" "$(grep -c '"purl"' "$to")"
done
