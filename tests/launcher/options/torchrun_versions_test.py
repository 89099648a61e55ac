"""torchrun/<version>.json says what each supported torchrun offers, torchrun/answers.json what ddprun makes of it: `same` meaning,
accepted with `nothing` to do, or `refused` with a text. Everything that is offered has an answer, and every answer is tried. For an
installed PyTorch the table is read again from its source. After a new release: tools/torch_interface.py launcher ... --write."""

import glob
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from harness import LauncherTest, free_port, main

FOLDER = pathlib.Path(__file__).resolve().parent / "torchrun"
TOOL = FOLDER.parents[3] / "tools/torch_interface.py"
CACHE = os.environ.get("DDPRUN_CACHE") or os.path.expanduser("~/.cache/ddprun")
ANSWERS = json.loads((FOLDER / "answers.json").read_text())
TABLES = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("[0-9]*.json"))}


def long_name(option):
    return option["spellings"][-1].lstrip("-").replace("-", "_")


def unanswered(table, answers):
    """What a version offers and nobody has answered."""
    known = {name: {entry.get("value", "").split("=")[0] if name == "rdzv_conf" else entry.get("value") for entry in entries}
             for name, entries in answers["options"].items()}
    missing = [f"option {long_name(option)}" for option in table["options"] if not known.get(long_name(option))]
    offered = {long_name(option): option["choices"] for option in table["options"] if "choices" in option}
    for name in ("nproc_per_node", "rdzv_backend", "rdzv_conf", "event_log_handler"):
        offered[name] = table[name]
    missing += [f"{name} {value}" for name, values in offered.items() for value in values if value not in known.get(name, ())]
    return missing + [f"variable {name}" for name in table["variables"] if name not in answers["variables"]]


def all_options():
    """Every option of any version, with the spellings of all."""
    found = {}
    for table in TABLES.values():
        for option in table["options"]:
            known = found.setdefault(long_name(option), {"spellings": set(), "variable": None})
            known["spellings"].update(option["spellings"])
            known["variable"] = option.get("variable", known["variable"])
    return found


class TorchrunVersions(LauncherTest):
    def setUp(self):
        super().setUp()
        self.port = str(free_port())
        self.write("script", "print('a script')\n")
        self.write("x.py", "")

    def filled(self, value):
        if isinstance(value, list):
            return [self.filled(each) for each in value]
        return value.replace("FOLDER", self.folder).replace("PORT", self.port) if value else value

    def check(self, entry, arguments, environment):
        """Runs ddprun with it and compares with the answer; returns what is wrong."""
        environment = {**environment, **{name: self.filled(value) for name, value in entry.get("environment", {}).items()}}
        if "gpus" in entry:
            environment.update(LD_LIBRARY_PATH=os.environ["FAKE_NVML"], FAKE_GPUS=str(entry["gpus"]))
        words = [*arguments, *self.filled(entry.get("with", [])), *entry.get("program", ANSWERS["program"])]
        words = [word.replace("FOLDER", self.folder) for word in words]
        begin = time.monotonic()
        status, out, err = self.run_job(*words, environment=environment, cwd=self.folder)
        seconds = time.monotonic() - begin
        wrong = []
        if status != (125 if entry["answer"] == "refused" else entry.get("status", 0)):
            wrong.append(f"status {status}")
        if "shows" in entry and not re.search(self.filled(entry["shows"]), out, re.M):
            wrong.append(f"does not show {entry['shows']}")
        if "says" in entry and not re.search(entry["says"], err):
            wrong.append(f"does not say {entry['says']}")
        if "says" not in entry and "has no effect" in err:
            wrong.append("says that it has no effect")
        if entry["answer"] == "refused" and ("says" not in entry or len(err.splitlines()) != 1):
            wrong.append("is not refused in one line that is expected")
        if seconds > entry.get("within", 120):
            wrong.append(f"took {seconds:.1f} s")
        if "finds" in entry:
            pattern, text = entry["finds"]
            files = glob.glob(os.path.join(self.folder, pattern), recursive=True)
            if not any(text in pathlib.Path(file).read_text() for file in files):
                wrong.append(f"no {pattern} with {text}")
        return f"{words} {environment}: {', '.join(wrong)}\n{out}{err}" if wrong else None

    def test_the_tables_are_those_of_the_supported_versions(self):
        source = (TOOL.parent / "torch_versions.py").read_text()
        self.assertEqual(set(TABLES), set(re.findall(r'"([\d.]+)"', re.search(r"VERSIONS = \[.*\]", source)[0])))

    def test_an_installed_torch_offers_what_its_table_says(self):
        checked = 0
        for version in TABLES:
            for package in glob.glob(f"{CACHE}/venv-{version}/lib/python3*/site-packages/torch"):
                read = subprocess.run([sys.executable, TOOL, "launcher", package], stdout=subprocess.PIPE, text=True, check=True)
                self.assertEqual(json.loads(read.stdout), TABLES[version], version)
                checked += 1
        print(f"versions read from an installation: {checked}")

    def test_everything_that_is_offered_has_an_answer(self):
        for version, table in TABLES.items():
            self.assertEqual(unanswered(table, ANSWERS), [], version)

    def test_an_answer_that_is_taken_away_is_missed(self):
        newest = TABLES[max(TABLES, key=lambda version: [int(part) for part in version.split(".")])]
        for name in ANSWERS["options"]:
            fewer = {**ANSWERS, "options": {key: value for key, value in ANSWERS["options"].items() if key != name}}
            self.assertIn(f"option {name}", unanswered(newest, fewer))
        for name in newest["variables"]:
            fewer = {**ANSWERS, "variables": {key: value for key, value in ANSWERS["variables"].items() if key != name}}
            self.assertEqual(unanswered(newest, fewer), [f"variable {name}"])
        for option in ("nproc_per_node", "rdzv_backend", "rdzv_conf", "event_log_handler"):
            for value in newest[option]:
                entries = [entry for entry in ANSWERS["options"][option] if entry["value"].split("=")[0] != value]
                fewer = {**ANSWERS, "options": {**ANSWERS["options"], option: entries}}
                self.assertEqual(unanswered(newest, fewer), [f"{option} {value}"])
        self.assertIsNotNone(self.check({"answer": "same"}, ["--an-option-that-ddprun-lacks", "1"], {}))
        self.assertIsNotNone(self.check({"answer": "same", "shows": "role=other"}, ["--role", "trainer"], {}))

    def test_every_option_in_every_spelling_and_from_its_variable(self):
        wrong = []
        for name, option in all_options().items():
            for entry in ANSWERS["options"][name]:
                value = self.filled(entry.get("value"))
                for spelling in sorted(option["spellings"]):
                    forms = [[spelling]] if value is None else [[spelling, value], [f"{spelling}={value}"]]
                    wrong += [self.check(entry, form, {}) for form in forms]
                if option["variable"]:
                    wrong.append(self.check(entry, [], {option["variable"]: value or "1"}))
        self.assertEqual([each for each in wrong if each], [])

    def test_every_variable(self):
        wrong = [self.check(entry, [], {name: self.filled(entry["value"])}) for name, entry in ANSWERS["variables"].items()]
        self.assertEqual([each for each in wrong if each], [])

    def test_every_field_of_templates(self):
        fields = {"hostname": os.uname().nodename, "local_rank": "0", "rank": "0", "role_name": "default"}
        for table in TABLES.values():
            for field in table["template"]:
                out = self.run_job("--log-line-prefix-template", "<${" + field + "}>", "echo")[1]
                self.assertEqual(out, f"<{fields[field]}>\n")

    def test_abbreviations_are_those_of_the_parser(self):
        """argparse takes every beginning of a name that no other option shares."""
        names = sorted({*all_options(), "help", "use_env"})
        begins = {name[:length] for name in names for length in range(1, len(name))}
        for begin in sorted(begins):
            found = [name for name in names if name.startswith(begin)]
            if begin in found or begin == "n":  # --n N is mpirun's and hydra's
                continue
            typed = "--" + begin.replace("_", "-")
            if len(found) > 1:
                status, _, err = self.run_job(typed, "x", "true")
                self.assertEqual((status, len(err.splitlines())), (125, 1), err)
                self.assertIn(f"ambiguous option: {typed} could match --", err)
                for name in found:
                    self.assertIn("--" + name.replace("_", "-"), err)
            elif begin[:-1] not in begins or len([name for name in names if name.startswith(begin[:-1])]) > 1:
                # The shortest one that will do.
                entry = ANSWERS["options"].get(found[0], [{"answer": "same"}])[0]
                value = [self.filled(entry["value"])] if "value" in entry else []
                if found[0] not in ("help", "use_env"):
                    self.assertIsNone(self.check(entry, [typed, *value], {}))
                else:
                    self.assertEqual(self.run_job(typed, "true")[0], 0, typed)


if __name__ == "__main__":
    main()
