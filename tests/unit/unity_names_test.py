#!/usr/bin/env python3
"""Sources of one target are compiled together under the sanitizers (cmake/options.cmake): the names in their
anonymous namespaces must differ, from each other's and from those that headers declare in the namespace around. Finds what
clashes in a second, where the compiler takes minutes. Usage: unity_names_test.py SOURCE_DIR
"""
import collections
import pathlib
import re
import sys

TYPE = re.compile(r"(?:template <.*> *)?(?:struct|class|enum class|enum|union) (?:alignas\(\w+\) )?(\w+)")
OTHER = re.compile(r"[\w:<>,&*\s\[\]]+?[\s&*](\w+)\s*(?:\(|=|\{|\[|;)")
OPEN = re.compile(r"^namespace ([\w:]*) ?\{", re.M)


def around(text, at):
    """The named namespace, flattened, that is open at this place: ours are not indented and say so at their end."""
    name = ""
    for m in OPEN.finditer(text, 0, at):
        if m.group(1) and not re.search(r"^\}  // namespace %s$" % re.escape(m.group(1)), text[m.end():at], re.M):
            name = (name + "::" + m.group(1)).strip(":")
    return name


def names_in(path):
    text = path.read_text()
    for block in re.finditer(r"^namespace \{$(.*?)^\}  // namespace$", text, re.M | re.S):
        where = around(text, block.start())
        for line in block.group(1).split("\n"):
            if not re.match(r"[A-Za-z]", line) or line.startswith(("TEST_CASE", "SCENARIO", "using", "namespace")):
                continue
            found = TYPE.match(line) or OTHER.match(line)
            if found:
                yield where, found.group(1)


def main():
    root = pathlib.Path(sys.argv[1])
    folders = [root / name for name in ("server", "client", "tests")]
    declared = collections.defaultdict(set)
    for folder in folders:
        for header in folder.rglob("*.h"):
            text = header.read_text()
            for m in re.finditer(r"^(?:struct|class|enum class) (?:alignas\(\w+\) )?(\w+)(?: final)?(?: :[^:].*)? \{", text, re.M):
                declared[around(text, m.start()), m.group(1)].add(header)
    failed = seen = 0
    for folder in folders:
        for lists in folder.rglob("CMakeLists.txt"):
            text = re.sub(r"#.*", "", lists.read_text())
            for m in re.finditer(r"(?:headroom_library|headroom_test)\(\s*(\w+)([^)]*)\)", text):
                sources = [lists.parent / s for s in m.group(2).split() if s.endswith(".cc") and (lists.parent / s).exists()]
                where = collections.defaultdict(list)
                for source in sources:
                    for name in sorted(set(names_in(source))):
                        where[name].append(source.name)
                        seen += 1
                for name, files in where.items():
                    if len(sources) > 1 and name in declared:
                        files += [str(h.relative_to(root)) for h in declared[name]]
                    if len(files) > 1:
                        print(f"{m.group(1)}: {'::'.join(name)} is in {', '.join(files)}: rename one")
                        failed = 1
    if seen < 100:
        print(f"only {seen} names found: this test no longer reads the sources right")
        failed = 1
    return failed


sys.exit(main())
