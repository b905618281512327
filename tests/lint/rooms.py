"""Compares the table of rooms in ARCHITECTURE.md with the #includes.

A room is a folder of production code, or a few folders that one row names. A
room's row says which other rooms it may use. The check is exact: an arrow that
the code has and the table has not is an error, and so is the reverse. A list in
parentheses, as in "kernels (`dtype`)", names the headers that may be used.

The `package_group`s in the root BUILD are compared, too: a package that may
use a room and includes none of its headers does not belong in the group.
"""

import os
import re

_TABLE = "ARCHITECTURE.md"
_CPP = (".h", ".cc", ".cu", ".cuh")
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
# "combine", "kernels (`dtype`, `narrow_float`)"
_USED = re.compile(r"([\w/]+)(?: \(([^)]*)\))?")
_VISIBILITY = re.compile(r'"//:(\w+_users)"')
_ROOTS = ("kernels", "proto", "server", "worker_client")


class Room:
    """One row of the table."""

    def __init__(self, folders, used):
        self.name = "`%s/`" % folders[0]
        self.folders = folders
        self.used = used  # {first folder of a room: headers, or None for all}


def _is_production(folder):
    return folder.split("/")[0] in _ROOTS


def _resolve(name, rooms):
    """The first folder of the room that a row calls `name`, or None."""
    for room in rooms:
        if room[0] == name:
            return name
    return next((room[0] for room in rooms if room[0].endswith("/" + name)),
                None)


def read_table(lines):
    """(rooms, findings) of the lines of ARCHITECTURE.md."""
    rows = []
    for line in lines:
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        folders = re.findall(r"`([\w/]+)/`", cells[0]) if cells else []
        if len(cells) == 3 and folders and _is_production(folders[0]):
            rows.append((folders, cells[2]))
    rooms, findings = [], []
    for folders, cell in rows:
        used = {}
        for name, headers in _USED.findall(cell):
            target = _resolve(name, [row[0] for row in rows])
            if target is None:
                findings.append("%s: the row of `%s/` names `%s`, which is "
                                "not a room" % (_TABLE, folders[0], name))
            else:
                used[target] = set(re.findall(r"`(\w+)`", headers)) or None
        rooms.append(Room(folders, used))
    return rooms, findings


def arrows(files):
    """{(folder, folder): [(path, line number, header)]} of production code."""
    found = {}
    for path, lines in files.items():
        folder = os.path.dirname(path)
        if not path.endswith(_CPP) or not _is_production(folder):
            continue
        for number, line in enumerate(lines, 1):
            match = _INCLUDE.match(line)
            target = os.path.dirname(match.group(1)) if match else ""
            if _is_production(target) and target != folder:
                found.setdefault((folder, target), []).append(
                    (path, number, match.group(1)))
    return found


def _room_arrows(rooms, found):
    """`arrows` between rooms, by their first folders; findings for others."""
    room_of = {folder: room.folders[0] for room in rooms
               for folder in room.folders}
    between, findings = {}, []
    for (folder, target), places in found.items():
        for end in (folder, target):
            if end not in room_of:
                findings.append("%s: no row for `%s/` (%s:%d)" % (
                    (_TABLE, end) + places[0][:2]))
        ends = (room_of.get(folder), room_of.get(target))
        if None not in ends and ends[0] != ends[1]:
            between.setdefault(ends, []).extend(places)
    return between, findings


def _check_row(room, between):
    for (folder, target), places in between.items():
        if folder != room.folders[0]:
            continue
        allowed = room.used.get(target, set())
        for path, number, header in places:
            stem = os.path.splitext(os.path.basename(header))[0]
            if allowed is not None and stem.partition(".")[0] not in allowed:
                yield "%s: the row of %s lacks %s, which %s:%d includes" % (
                    _TABLE, room.name, header, path, number)
                break
    for target, headers in room.used.items():
        places = between.get((room.folders[0], target), [])
        if not places:
            yield "%s: the row of %s lists %s, of which it includes " \
                "nothing" % (_TABLE, room.name, target)
        stems = {os.path.basename(header).partition(".")[0]
                 for _, _, header in places}
        for header in sorted((headers or set()) - stems if places else ()):
            yield "%s: the row of %s lists `%s` of %s, which it does not " \
                "include" % (_TABLE, room.name, header, target)


def _group_folders(files):
    """{package_group: folders whose BUILD takes it for visibility}."""
    folders = {}
    for path, lines in files.items():
        if os.path.basename(path) == "BUILD" and path != "BUILD":
            for group in _VISIBILITY.findall("\n".join(lines)):
                folders.setdefault(group, set()).add(os.path.dirname(path))
    return folders


def check_groups(files, groups, found):
    """Packages in a room's package_group that do not use the room."""
    for group, folders in _group_folders(files).items():
        for pattern in groups.get(group, []):
            name, deep = pattern[len("//"):], pattern.endswith("/...")
            name = name[:-len("/...")] if deep else name
            if not _is_production(name):
                continue
            if not any(target in folders and
                       (folder == name or
                        deep and folder.startswith(name + "/"))
                       for folder, target in found):
                yield "BUILD: %s lists %s, which includes nothing of %s" % (
                    group, pattern, ", ".join(sorted(folders)))


def check(files, groups):
    """All findings, for lint.py."""
    rooms, findings = read_table(files[_TABLE])
    found = arrows(files)
    between, unknown = _room_arrows(rooms, found)
    findings += unknown
    for room in rooms:
        findings += _check_row(room, between)
    return findings + list(check_groups(files, groups, found))
