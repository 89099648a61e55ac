"""The manual page and the completions of `ddprun --generate`: nothing of --help is missing, and the shells do with them what they should."""

import os
import pty
import re
import shlex
import shutil
import subprocess
import threading
import unittest

from harness import DDPRUN, LauncherTest, main, wait_until

PRINT_PAGES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../cmake/PrintPages.cmake")
BASH_COMPLETION = "/usr/share/bash-completion/bash_completion"


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"no {program} here")


class GeneratedTexts(LauncherTest):
    def generated(self, kind, **options):
        status, out, err = self.run_job("--generate", kind, **options)
        self.assertEqual((status, err), (0, ""))
        return out

    def options(self):
        """(names, default, variable, meaning) of each option of --help."""
        found = []
        text = re.sub(r"\n {8}(\[.*\]  PET_\w+)\n", r"  \1\n", self.run_job("--help")[1])  # where one line was too short
        for line in text.splitlines():
            if line.startswith("  -"):
                usage, default, variable = re.fullmatch(r"  (.*?)(?:  +\[(.*)\]  (PET_\w+))?", line).groups()
                found.append((re.findall(r"(?:^|, )(--?\w+)", usage), default, variable, []))
            elif line.startswith("        "):
                found[-1][3].append(line.strip())
        self.assertGreater(len(found), 50)
        return [(names, default, variable, " ".join(meaning)) for names, default, variable, meaning in found]

    def subcommands(self):
        """{"timeline start": names of its options} of the words that ddprun has commands of its own for, as their --help tells it."""
        found = {}
        for word in sorted(set(re.findall(r"`ddprun (\w+) ", self.run_job("--help")[1].split("Usage:")[0]))):
            usages = re.search(r"^Usage: (?:ddprun .*\n *)+", self.run_job(word, "--help")[1], re.MULTILINE)[0]
            for words, rest in re.findall(r"ddprun ([\w ]+\w)(.*)", usages):
                found[words] = re.findall(r"\[(-[-\w]+)", rest)
        self.assertEqual(found, {"stack": ["--all_users"], "status": ["--json", "--all_users"], "top": ["--all_users"], "timeline start": ["-o", "--all_users"],
                                 "timeline stop": ["--all_users"]})
        return found

    def start_job(self, name):
        """A job that is found by this name until the test ends."""
        self.start("--rdzv_id", name, "sleep", "1000", environment=self.found_here())
        wait_until(lambda: self.run_job("status", name, environment=self.found_here())[0] == 0, "a job that answers")

    def found_here(self):
        """Variables with which a shell finds this ddprun, and of all jobs the test's."""
        os.makedirs(self.path("runtime"), mode=0o700, exist_ok=True)
        return {"XDG_RUNTIME_DIR": self.path("runtime"), "PATH": f"{os.path.dirname(DDPRUN)}:{os.environ['PATH']}"}

    def run_tool(self, *command, text=None, **environment):
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, env={**os.environ, **environment},
                              cwd=self.folder)
        return done.returncode, done.stdout, done.stderr


class Generating(GeneratedTexts):
    KINDS = ("man", "bash", "zsh", "fish")

    def test_the_same_bytes_come_every_time_and_everywhere(self):
        for kind in self.KINDS:
            text = self.generated(kind)
            self.assertTrue(text.isascii() and text.endswith("\n"), kind)
            self.assertEqual(self.generated(kind, environment={"LC_ALL": "C", "TZ": "Asia/Tokyo", "PET_NPROC_PER_NODE": "3", "HOME": "/"},
                                            cwd="/"), text)

    def test_an_unknown_kind_is_refused_with_the_known_ones(self):
        status, out, err = self.run_job("--generate", "tcsh")
        self.assertEqual((status, out), (125, ""))
        self.assertEqual(err, "ddprun: --generate: expected man, bash, zsh, fish, options, variables, exit-statuses or coming-from, got 'tcsh'\n")

    def test_no_variable_makes_a_job_print_it(self):
        self.assertEqual(self.run_job("echo", "x", environment={"PET_GENERATE": "man"})[:2], (0, "x\n"))


class Printing(GeneratedTexts):
    """What the build does with them."""

    FILES = {"man": "ddprun.1", "bash": "ddprun.bash", "zsh": "_ddprun", "fish": "ddprun.fish"}

    def print_pages(self, program):
        status, _, err = self.run_tool(os.environ["CMAKE"], "-D", f"PROGRAM={program}", "-D", f"FOLDER={self.path('pages')}", "-P", PRINT_PAGES)
        return status, err

    def test_every_text_becomes_a_file(self):
        self.assertEqual(self.print_pages(";" + DDPRUN), (0, ""))
        self.assertEqual(sorted(os.listdir(self.path("pages"))), sorted([*self.FILES.values(), "stamp"]))
        for kind, name in self.FILES.items():
            self.assertEqual(self.read("pages/" + name), self.generated(kind))

    def test_a_launcher_that_cannot_be_run_is_a_warning_and_leaves_no_file(self):
        self.print_pages(DDPRUN)
        for program in ("false", self.path("missing"), self.write("half", '#!/bin/sh\n[ "$2" = man ]\n', executable=True)):
            status, err = self.print_pages(program)
            self.assertEqual((status, os.listdir(self.path("pages"))), (0, []), err)
            self.assertRegex(err, r"installed without\s+manual page and\s+completions")


class ManualPage(GeneratedTexts):
    def shown(self):
        """The page as its reader sees it, one line per paragraph or term."""
        text = re.sub(r'^\.\\".*\n', "", self.generated("man"), flags=re.MULTILINE)
        text = re.sub(r"\\f[BIR]|\\&", "", text)
        for escape, character in ((r"\-", "-"), (r"\(aq", "'"), (r"\(dq", '"'), (r"\(ga", "`"), (r"\(ha", "^"), (r"\(ti", "~"), (r"\e", "\\")):
            text = text.replace(escape, character)
        return text

    def test_every_option_stands_there_with_its_meaning_default_and_variable(self):
        text = self.shown()
        for names, default, variable, meaning in self.options():
            (entry,) = re.findall(rf"^\.TP\n{', '.join(names)}(?:\[?[= ].*)?\n((?:[^.].*\n|\.br\n)*)", text, re.MULTILINE)
            words, _, rest = entry.partition(".br\n")
            self.assertRegex(" ".join(words.split()), rf"\A{re.escape(meaning)}(\.|\Z)")  # more may follow
            self.assertEqual(rest, f"Default: {default}; variable: {variable}\n" if variable else "", names)

    def test_every_variable_of_a_rank_stands_there(self):
        text = self.shown().split(".SS Of each rank\n")[1].split(".SS ")[0]
        shown = self.run_job("-n", "1", "--show_env")[1]
        described = set(re.findall(r"\b[A-Z_]{4,}\b", " ".join(re.findall(r"^\.TP\n(.*)", text, re.MULTILINE))))
        self.assertLessEqual(set(re.findall(r"^    ([A-Z_]+)=", shown, re.MULTILINE)), described)
        inside = self.run_job("-n", "1", "env")[1]
        self.assertLessEqual(set(re.findall(r"((?:DDPRUN_(?!TEST)|TORCH)[A-Z_]+)=", inside)) - set(os.environ), described)

    def test_it_has_the_sections_of_a_manual_page(self):
        self.assertEqual(re.findall(r"^\.SH (.*)", self.shown(), re.MULTILINE),
                         ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "SUBCOMMANDS", "ENVIRONMENT", "EXIT STATUS", "EXAMPLES", "SEE ALSO"])

    def test_the_groups_are_those_of_the_help(self):
        groups = re.findall(r"^(?=\S)(.*)\n  -", self.run_job("--help")[1], re.MULTILINE)
        self.assertEqual(re.findall(r"^\.SS (.*)", self.shown(), re.MULTILINE)[:len(groups)], groups)

    def test_every_subcommand_stands_there_with_its_options(self):
        text = self.shown()
        synopsis = text.split(".SH SYNOPSIS\n")[1].split(".SH")[0]
        section = text.split(".SH SUBCOMMANDS\n")[1].split(".SH")[0]
        for words, names in self.subcommands().items():
            self.assertRegex(synopsis, rf"(?m)^ddprun {words} \[JOB\]")
            self.assertRegex(section, rf"(?m)^\.T[PQ]\nddprun {words} \[JOB\]")
            for name in names:
                self.assertRegex(section, rf"(?m)^\.TP\n{name}\b")

    def test_every_variable_that_ranks_get_is_told(self):
        out = self.run_job("--show_env", "--gpus", "0", environment={"OMP_NUM_THREADS": ""})[1]
        variables = re.findall(r"^ +([A-Z_]+)=", out, re.MULTILINE)
        self.assertGreater(len(variables), 15)
        environment = self.shown().split(".SS Of each rank")[1].split(".SS Of ddprun")[0]
        for variable in variables:
            self.assertRegex(environment, rf"\b{variable}\b")

    def test_the_examples_are_command_lines_that_ddprun_takes(self):
        section = self.shown().split(".SH EXAMPLES\n")[1].split(".SH")[0]
        commands = re.findall(r"^\.TP\nddprun (.*)", section, re.MULTILINE)
        self.assertGreater(len(commands), 3)
        self.write("train", "#!/bin/sh\n", executable=True)
        self.write("train.py", "")
        for command in commands:
            status, _, err = self.run_job("--dry_run", *shlex.split(command.replace("-n gpu", "-n 1")), cwd=self.folder)
            self.assertEqual(status, 0, f"{command}: {err}")

    @needs("groff")
    def test_groff_has_no_warning(self):
        status, _, err = self.run_tool("groff", "-man", "-ww", "-z", "-Tascii", text=self.generated("man"))
        self.assertEqual((status, err), (0, ""))

    @needs("mandoc")
    def test_mandoc_has_no_warning(self):
        _, out, err = self.run_tool("mandoc", "-Tlint", text=self.generated("man"))
        findings = (out + err).splitlines()
        # A date would be one that drifts, or the day of the build.
        self.assertEqual([line for line in findings if 'missing date, using ""' not in line], [])

    @needs("man")
    def test_man_shows_it_as_it_is_meant(self):
        page = self.write("ddprun.1", self.generated("man"))
        status, out, err = self.run_tool("man", "--warnings", "-l", page, MANWIDTH="100", LC_ALL="C", MANPAGER="cat", MAN_KEEP_FORMATTING="")
        if "not found" in err or "minimized" in out:
            self.skipTest("this machine's man shows no pages")
        self.assertEqual((status, err), (0, ""))
        text = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", out)
        self.assertRegex(text, r"\n +-n, --nproc_per_node N\|gpu\|cpu\|auto\n")
        self.assertIn("'[{rank}] '; with one rank: nothing", text)


class BashCompletion(GeneratedTexts):
    def offered(self, line, before="", breaks="=:", behind="", **environment):
        """What bash offers at the end of `line`, which it cuts into words as its readline does; `behind` follows the cursor."""
        script = self.write("completion.bash", self.generated("bash"))
        words = [word for word in re.findall(rf"[{breaks}]+|[^\s{breaks}]+" if breaks else r"\S+", line)]
        if line.endswith(" "):
            words.append("")
        words[-1] += behind
        program = (f"{before}\ncompopt() {{ :; }}\n. {shlex.quote(script)}\nCOMP_WORDS=({' '.join(map(shlex.quote, words))})\n"
                   f"COMP_LINE={shlex.quote(line + behind)} COMP_POINT={len(line)} COMP_CWORD={len(words) - 1}\n"
                   "$(complete -p ddprun | sed 's/.*-F \\([^ ]*\\) .*/\\1/') ddprun\nprintf '%s\\n' \"${COMPREPLY[@]}\"")
        status, out, err = self.run_tool("bash", "--norc", "-c", program, **environment)
        self.assertEqual((status, err), (0, ""), line)
        return [word for word in out.split("\n") if word]

    def test_every_option_is_offered_in_the_spelling_of_the_help(self):
        names = [name for names, *_ in self.options() for name in names]
        self.assertEqual(sorted(self.offered("ddprun -")), sorted(names))
        self.assertEqual(self.offered("ddprun --nproc"), ["--nproc_per_node"])
        self.assertEqual(self.offered("ddprun -n 2 --nproc-per"), ["--nproc_per_node"])

    def test_words_are_offered_where_there_is_a_choice_and_nothing_for_a_number(self):
        for option in ("--bind_to ", "--bind-to ", "--bind_to=", "--bind-to=", "-m -x A=b:c --bind_to="):
            self.assertEqual(self.offered("ddprun " + option), ["none", "core", "numa"], option)
            self.assertEqual(self.offered("ddprun " + option + "n"), ["none", "numa"], option)
        self.assertEqual(self.offered("ddprun --bind-to=c", breaks=""), ["--bind-to=core"])
        for option in ("-n ", "-np ", "-n=", "-x=A -n=", "--nproc-per-node="):
            self.assertEqual(self.offered("ddprun " + option), ["gpu", "cpu", "auto"])
        self.assertEqual(self.offered("ddprun -n=g", breaks=""), ["-n=gpu"])
        self.assertEqual(self.offered("ddprun -x="), [])
        self.assertEqual(self.offered("ddprun --bind_to n", behind="xyz"), ["none", "numa"])
        self.assertEqual(self.offered("ddprun --generate z"), ["zsh"])
        for option in ("--nnodes ", "--grace=", "--rdzv_endpoint host:", "--prefix="):
            self.assertEqual(self.offered("ddprun " + option), [], option)

    def test_files_and_folders_are_offered_where_one_is_meant(self):
        self.write("train run.py", "")
        self.write("train", "", executable=True)
        os.mkdir(self.path("trained"))
        self.assertEqual(sorted(self.offered("ddprun --events tr")), ["train", "train run.py", "trained"])
        self.assertEqual(self.offered("ddprun --log_dir=tr"), ["trained"])
        self.assertEqual(self.offered("ddprun --log_dir=tr", breaks=""), ["--log_dir=trained"])
        for line in ("ddprun ./tr", "ddprun -n 2 --prefix ./tr", "ddprun -H localhost:2 -x A=b -- ./tr"):
            self.assertEqual(sorted(self.offered(line)), ["./train", "./train run.py", "./trained"], line)
        self.assertIn("true", self.offered("ddprun -n 2 tru"))
        self.assertEqual(self.offered("ddprun -m tr"), [])

    def test_what_follows_the_program_is_left_to_its_own_completion(self):
        hand_over = "_command_offset() { COMPREPLY=(\"${COMP_WORDS[$1]}\"); }"
        for line in ("ddprun prog ", "ddprun -n 2 prog --bind_to ", "ddprun -H localhost:2 --bind-to core -np 2 --prefix prog -n ",
                     "ddprun -x A=b:c -- prog -", "ddprun --tee=3 prog x=y:"):
            self.assertEqual(self.offered(line, before=hand_over), ["prog"], line)
        self.assertEqual(self.offered("ddprun -n prog --no_", before=hand_over)[:2], ["--no_python", "--no_prefix"])

    def test_ddpruns_own_commands_are_offered_with_their_options_and_the_running_jobs(self):
        first = {words.split()[0] for words in self.subcommands()}
        self.assertLessEqual(first, set(self.offered("ddprun ")))
        self.assertIn("status", self.offered("ddprun stat"))
        for line in ("ddprun -n 2 statu", "ddprun -- statu"):
            self.assertEqual(self.offered(line), [])
        self.assertEqual(self.offered("ddprun timeline "), ["start", "stop", "--help"])
        for words, names in self.subcommands().items():
            offered = self.offered(f"ddprun {words} -")
            self.assertIn("--help", offered)
            self.assertLessEqual(set(names), set(offered))
            self.assertEqual("--output" in offered, "-o" in names)
        self.write("trace.json", "")
        for option in ("-o", "--output"):
            self.assertEqual(self.offered(f"ddprun timeline start {option} tr"), ["trace.json"])
        self.start_job("a-job.7")
        for words in self.subcommands():
            self.assertEqual(self.offered(f"ddprun {words} a-", **self.found_here()), ["a-job.7"], words)

    @unittest.skipUnless(os.path.exists(BASH_COMPLETION), "no bash-completion here")
    def test_bash_completion_completes_the_program(self):
        before = f". {BASH_COMPLETION}\ncomplete -W 'alpha beta' prog"
        self.assertEqual(self.offered("ddprun -H localhost:2 prog x=y al", before=before), ["alpha"])
        self.assertEqual(self.offered("ddprun -- prog --x be", before=before), ["beta"])


class Terminal:
    """A shell at a terminal that is typed at. Whatever `ddprun` gets there goes to a file."""

    def __init__(self, test, command, setup):
        self.test, self.command = test, command
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, cwd=test.folder, start_new_session=True,
                                        env={**os.environ, **test.found_here(), "HOME": test.folder, "ZDOTDIR": test.folder, "TERM": "dumb", "PS1": "> "})
        os.close(slave)
        threading.Thread(target=self.drain, daemon=True).start()
        test.addCleanup(self.close)
        self.wait(setup + "\n: > ready\n", "ready")

    def drain(self):
        try:
            while os.read(self.master, 4096):
                pass
        except OSError:
            pass

    def wait(self, text, name):
        os.write(self.master, text.encode())
        wait_until(lambda: os.path.exists(self.test.path(name)), f"{self.command}: {text!r}")

    def completed(self, line):
        """The arguments that ddprun gets when Tab and Enter are pressed behind `line`."""
        self.wait(f"ddprun {line}\t\n", "typed")
        arguments = self.test.read("typed").splitlines()
        os.remove(self.test.path("typed"))
        return arguments

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)


TAKES_DOWN = 'ddprun() { printf "%s\\n" "$@" > typing; mv typing typed; }'


class AtATerminal(GeneratedTexts):
    """Completions that bash and zsh make while one types."""

    def check(self, terminal):
        self.start_job("a-job.7")
        self.write("events.json", "")
        self.write("prog", "#!/bin/sh\n", executable=True)
        os.mkdir(self.path("evening"))
        for typed, expected in (("--nproc_p", ["--nproc_per_node"]), ("--nproc-p", ["--nproc_per_node"]), ("--bind_to nu", ["--bind_to", "numa"]),
                                ("--bind-to nu", ["--bind-to", "numa"]), ("--bind_to=nu", ["--bind_to=numa"]), ("--bind-to=nu", ["--bind-to=numa"]),
                                ("-n 2 --keep", ["-n", "2", "--keep_daemons"]), ("-n g", ["-n", "gpu"]), ("--nnodes e", ["--nnodes", "e"]),
                                ("--log_dir e", ["--log_dir", "evening"]), ("--events events.j", ["--events", "events.json"]),
                                ("-x A=b --prefix ./pr", ["-x", "A=b", "--prefix", "./prog"]), ("-np 2 ./pr", ["-np", "2", "./prog"]), ("-np gp", ["-np", "gpu"]),
                                ("-n 2 events.j", ["-n", "2", "events.json"]),
                                ("timel", ["timeline"]), ("timeline sto", ["timeline", "stop"]), ("status --j", ["status", "--json"]),
                                ("timeline start --o", ["timeline", "start", "--output"]), ("top --h", ["top", "--help"]),
                                ("timeline start -o events.j", ["timeline", "start", "-o", "events.json"]), ("-n 2 ./pr", ["-n", "2", "./prog"]),
                                ("status a-j", ["status", "a-job.7"]), ("timeline stop a-j", ["timeline", "stop", "a-job.7"])):
            with self.subTest(typed=typed):
                # zsh takes the "/" behind a folder away when the line ends.
                self.assertEqual([word.rstrip("/") for word in terminal.completed(typed)], expected)

    def test_bash(self):
        script = self.write("completion.bash", self.generated("bash"))
        terminal = Terminal(self, ["bash", "--norc", "-i"], f". {shlex.quote(script)}; {TAKES_DOWN}")
        self.check(terminal)

    @needs("zsh")
    def test_zsh(self):
        os.mkdir(self.path("functions"))
        self.write("functions/_ddprun", self.generated("zsh"))
        terminal = Terminal(self, ["zsh", "-f", "-i"],
                            f"fpath=({shlex.quote(self.path('functions'))} $fpath); autoload -Uz compinit; compinit -u -D; "
                            f"_own() {{ compadd alpha --bind_too }}; compdef _own prog; {TAKES_DOWN}")
        self.check(terminal)
        self.assertEqual(terminal.completed("-n 2 prog al"), ["-n", "2", "prog", "alpha"])
        self.assertEqual(terminal.completed("-n 2 prog --bind_to nu"), ["-n", "2", "prog", "--bind_to", "nu"])
        self.assertEqual(terminal.completed("-n 2 prog x --bind"), ["-n", "2", "prog", "x", "--bind_too"])

    @needs("zsh")
    def test_zsh_reads_it(self):
        self.assertEqual(self.run_tool("zsh", "-n", text=self.generated("zsh")), (0, "", ""))

    def test_zsh_has_every_option(self):
        text = self.generated("zsh")
        for names, *_ in self.options():
            for name in names:
                self.assertRegex(text, rf"    '(\*|\([-\w ]+\)){name}[=+-]*\[")


class FishCompletion(GeneratedTexts):
    def offered(self, line, before="", **environment):
        script = self.write("ddprun.fish", self.generated("fish"))
        status, out, err = self.run_tool("fish", "--no-config", "-c", f"{before}\nsource {shlex.quote(script)}\ncomplete -C {shlex.quote(line)}",
                                         HOME=self.folder, XDG_CONFIG_HOME=self.folder, XDG_DATA_HOME=self.folder, **environment)
        self.assertEqual((status, err), (0, ""), line)
        return [offer.split("\t")[0] for offer in out.splitlines()]

    def test_every_option_is_there(self):
        text = self.generated("fish")
        for names, *_ in self.options():
            spelt = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in names)
            self.assertRegex(text, rf"\ncomplete -c ddprun -n __ddprun_own {spelt} ")

    @needs("fish")
    def test_options_are_offered_in_the_spelling_of_the_help(self):
        names = [name for names, *_ in self.options() for name in names]
        self.assertEqual(sorted({*self.offered("ddprun -"), *self.offered("ddprun --")}), sorted(names))
        self.assertEqual(self.offered("ddprun -n 2 --nproc"), ["--nproc_per_node"])
        self.assertEqual(self.offered("ddprun -n 2 --nproc-p"), ["--nproc-per-node"])

    @needs("fish")
    def test_words_files_and_folders_are_offered_where_they_are_meant(self):
        self.write("train", "", executable=True)
        os.mkdir(self.path("trained"))
        for option in ("--bind_to ", "--bind-to "):
            self.assertEqual(sorted(self.offered("ddprun " + option)), ["core", "none", "numa"])
        self.assertEqual(self.offered("ddprun --bind_to=nu"), ["--bind_to=numa"])
        self.assertEqual(self.offered("ddprun --nnodes "), [])
        self.assertEqual(self.offered("ddprun --log_dir tr"), ["trained/"])
        self.assertEqual(sorted(self.offered("ddprun --events tr")), ["train", "trained/"])
        self.assertEqual(sorted(self.offered("ddprun -x A=b --prefix ./tr")), ["./train", "./trained/"])
        self.assertIn("true", self.offered("ddprun -n 2 tru"))

    @needs("fish")
    def test_ddpruns_own_commands_are_offered_with_their_options_and_the_running_jobs(self):
        self.assertIn("timeline", self.offered("ddprun "))
        self.assertNotIn("timeline", self.offered("ddprun -n 2 timel"))
        self.assertEqual(sorted(self.offered("ddprun timeline ")), ["start", "stop"])
        for words, names in self.subcommands().items():
            offered = [*self.offered(f"ddprun {words} -"), *self.offered(f"ddprun {words} --")]
            self.assertLessEqual({"--help", *names}, set(offered))
            self.assertEqual("--output" in offered, "-o" in names)
            self.assertNotIn("--nproc_per_node", offered)
        self.write("trace.json", "")
        self.assertEqual(self.offered("ddprun timeline start -o tr"), ["trace.json"])
        self.start_job("a-job.7")
        for words in self.subcommands():
            self.assertEqual(self.offered(f"ddprun {words} a-", **self.found_here()), ["a-job.7"], words)

    @needs("fish")
    def test_what_follows_the_program_is_left_to_its_own_completion(self):
        before = "complete -c prog -f -a 'alpha beta'; complete -c prog -l bind_too"
        for line in ("ddprun prog al", "ddprun -n 2 --bind-to core prog x al", "ddprun -np 2 --prefix prog -n al", "ddprun -x A=b -- prog al"):
            self.assertEqual(self.offered(line, before), ["alpha"], line)
        self.assertEqual(self.offered("ddprun -n 2 prog --bind", before), ["--bind_too"])


if __name__ == "__main__":
    main()
