#!/usr/bin/python3
"""Writes what is in the image as an SPDX 2.3 document (JSON).

    deploy/image/sbom.py CONTEXT --version=VERSION [--output=FILE]

CONTEXT is a folder of make_context.sh: system/ has files of this machine at
their own paths, which dpkg knows; app/opt/agg_server/PACKAGES, of a bundle, says
which package its libraries are of and what was compiled into its programs.

In it: the image, each Debian package of which it has a file or a part, with
version, source, purl and the licenses that its copyright file names; each file
with checksums; and which file is of which package. A library that belongs to no
package is an error: what is not listed cannot be looked up when a hole in it is
published. The same context gives the same document, but for its time.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.parse

DOC = pathlib.Path("/usr/share/doc")
OWN = "opt/agg_server"
FIELDS = ("name", "version", "architecture", "source", "source_version")


class SbomError(Exception):
    """What cannot be listed, in words."""


def query(*arguments):
    return subprocess.run(["dpkg-query", *arguments], check=False, text=True,
                          capture_output=True).stdout


def about(names):
    """{name: its FIELDS} of installed packages."""
    if not names:
        return {}  # dpkg-query would list every package of the machine
    form = "\\t".join(["${Package}", "${Version}", "${Architecture}",
                       "${source:Package}", "${source:Version}"]) + "\\n"
    found = {}
    for line in query("-W", "-f", form, *sorted(names)).splitlines():
        values = dict(zip(FIELDS, line.split("\t")))
        found[values["name"]] = values
    for name in names:
        if name not in found:
            raise SbomError(f"package {name} is not installed here")
    return found


def owners(paths):
    """{path: package} of files of this machine, libraries in /usr/lib or, as
    the loader says, in /lib."""
    asked = {}
    for path in paths:
        for other in {path, os.path.realpath(path)}:
            asked[other] = path
            asked[other.removeprefix("/usr")] = path
            asked["/usr" + other.removeprefix("/usr")] = path
    found = {}
    for line in query("-S", *sorted(asked)).splitlines():
        names, _, path = line.rpartition(": ")
        if path in asked:
            found[asked[path]] = names.split(",")[0].split(":")[0]
    return found


def bundled(context):
    """({path in the image: package}, {packages compiled in}, {name: FIELDS}) of
    PACKAGES; empty without."""
    files, compiled, packages = {}, set(), {}
    listed = context / "app" / OWN / "PACKAGES"
    lines = listed.read_text().splitlines() if listed.exists() else []
    for line in lines:
        path, *values = line.split("\t")
        package = dict(zip(FIELDS, values))
        packages[package["name"]] = package
        if path == "-":
            compiled.add(package["name"])
        else:
            files[f"/{OWN}/{path}"] = package["name"]
    return files, compiled, packages


def licenses(name):
    """What a package's copyright file calls its licenses, and whose it is."""
    path = DOC / name / "copyright"
    text = path.read_text(errors="replace") if path.exists() else ""
    names = sorted(set(re.findall(r"(?m)^License:[ \t]*(\S.*)$", text)))
    holders = sorted(set(re.findall(r"(?m)^Copyright:[ \t]*(\S.*)$", text)))
    return names, holders


def identifier(kind, text):
    return f"SPDXRef-{kind}-" + re.sub(r"[^A-Za-z0-9.-]", "-", text)


def file_entry(path, on_disk):
    data = on_disk.read_bytes()
    return {
        "SPDXID": identifier("File", path.lstrip("/")),
        "fileName": "." + path,
        "fileTypes": ["BINARY" if data[:4] == b"\x7fELF" else "OTHER"],
        "checksums": [
            {"algorithm": name.upper(), "checksumValue":
             hashlib.new(name, data).hexdigest()}
            for name in ("sha1", "sha256")],
        "licenseConcluded": "NOASSERTION",
        "licenseInfoInFiles": ["NOASSERTION"],
        "copyrightText": "NOASSERTION",
    }


def with_files(package, files):
    """The package with SPDX's code of the files of it that are here."""
    sums = sorted(entry["checksums"][0]["checksumValue"] for entry in files)
    package["filesAnalyzed"] = bool(files)
    if files:
        package["packageVerificationCode"] = {
            "packageVerificationCodeValue":
                hashlib.sha1("".join(sums).encode()).hexdigest()}
    return package


def debian_package(values, files):
    names, holders = licenses(values["name"])
    version = urllib.parse.quote(values["version"], safe="")
    package = {
        "SPDXID": identifier("Debian", values["name"]),
        "name": values["name"],
        "versionInfo": values["version"],
        "supplier": "Organization: Debian",
        "downloadLocation": "NOASSERTION",
        "sourceInfo": "built from Debian's source package "
                      f"{values['source']} {values['source_version']}",
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "\n".join(holders) or "NOASSERTION",
        "primaryPackagePurpose": "LIBRARY",
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": f"pkg:deb/debian/{values['name']}@{version}"
                                f"?arch={values['architecture']}"}],
    }
    if names:
        package["licenseComments"] = (
            "its copyright file, which is in the image's NOTICES, names: "
            + ", ".join(names))
    return with_files(package, files)


def image_package(version, files):
    return with_files({
        "SPDXID": "SPDXRef-Image",
        "name": "agg-server",
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": "CONTAINER",
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": "pkg:generic/agg-server@"
                                + urllib.parse.quote(version, safe="")}],
    }, files)


def image_files(context):
    """{path in the image: file in the context}."""
    return {"/" + str(file.relative_to(context / part)): file
            for part in ("app", "system")
            for file in sorted((context / part).rglob("*")) if file.is_file()}


def owned(context, paths):
    """({path: package}, {packages compiled in}, {name: FIELDS})."""
    files, compiled, packages = bundled(context)
    files = {path: name for path, name in files.items() if path in paths}
    files.update(owners([path for path in paths
                         if (context / "system" / path[1:]).exists()]))
    # Made by their package when it is installed, and so a file of none.
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    if bundle in paths:
        files[bundle] = "ca-certificates"
    packages.update(about(set(files.values()) - set(packages)))
    strangers = [path for path in paths
                 if re.search(r"\.so(\.|$)", path) and path not in files]
    if strangers:
        raise SbomError("of no package: " + ", ".join(strangers))
    return files, compiled, packages


def related(one, kind, other):
    return {"spdxElementId": one, "relationshipType": kind,
            "relatedSpdxElement": other}


def document(context, version, created):
    paths = image_files(context)
    owner, compiled, packages = owned(context, paths)
    entries = {path: file_entry(path, file) for path, file in paths.items()}
    of_package = {name: [entries[path] for path in paths
                         if owner.get(path) == name] for name in packages}
    own = [entries[path] for path in paths if path not in owner]
    result = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"agg-server {version}",
        "creationInfo": {"created": created,
                         "creators": ["Tool: agg_server-sbom"]},
        "packages": [image_package(version, own)] + [
            debian_package(packages[name], of_package[name])
            for name in sorted(packages)],
        "files": [entries[path] for path in sorted(entries)],
        "relationships": [
            related("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Image")],
    }
    add = result["relationships"].append
    for entry in own:
        add(related("SPDXRef-Image", "CONTAINS", entry["SPDXID"]))
    for name in sorted(packages):
        package = identifier("Debian", name)
        if of_package[name]:
            add(related("SPDXRef-Image", "CONTAINS", package))
        if name in compiled:
            add(related("SPDXRef-Image", "STATIC_LINK", package))
        for entry in of_package[name]:
            add(related(package, "CONTAINS", entry["SPDXID"]))
    digest = hashlib.sha256(json.dumps(
        [result["packages"], result["files"]]).encode()).hexdigest()
    result["documentNamespace"] = (
        f"https://spdx.org/spdxdocs/agg-server-{digest}")
    return result


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("context", type=pathlib.Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--output", type=pathlib.Path)
    flags = parser.parse_args()
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    now = (datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc)
           if seconds else datetime.datetime.now(datetime.timezone.utc))
    try:
        text = json.dumps(document(flags.context, flags.version, now.strftime(
            "%Y-%m-%dT%H:%M:%SZ")), indent=1) + "\n"
    except SbomError as error:
        sys.exit(f"deploy/image/sbom.py: {error}")
    if flags.output:
        flags.output.write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
