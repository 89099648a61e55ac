"""What a release of PyTorch offers to its users, as a table to compare with: `torch_interface.py PART FOLDER [--write FILE]`.

PART `launcher`: the options of torchrun with their spellings, kinds, defaults and choices, the values that their code knows, and the
variables that torchrun and torch.distributed.elastic read. FOLDER is the package `torch` of an installation, or one that holds only
torch/distributed/run.py, torch/distributed/elastic and torch/numa. Only the source is read (its syntax tree), nothing is imported, so
any Python can read any version. Another part of the interface is another function in PARTS.
"""

import argparse
import ast
import json
import pathlib
import re
import sys


def constant(node):
    """The value of a literal, else its source."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def enum_values(source, name):
    """The values of the string enumeration `name` in a file."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return [each.value.value for each in node.body if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant)]
    raise LookupError(f"{source}: no class {name}")


def choices_of(node, function, package):
    """`choices=` of an option: a list, the list that a variable holds, or the values of an enumeration."""
    if isinstance(node, ast.List):
        return [element.value for element in node.elts]
    if isinstance(node, ast.Name):
        for each in ast.walk(function):
            if isinstance(each, ast.Assign) and isinstance(each.value, ast.List) and ast.unparse(each.targets[0]) == node.id:
                return choices_of(each.value, function, package)
    if isinstance(node, ast.ListComp):
        enumeration = ast.unparse(node.generators[0].iter)
        return enum_values(package / "numa/binding.py", {"_AffinityMode": "AffinityMode"}.get(enumeration, enumeration))
    raise LookupError(f"choices that this tool cannot read: {ast.unparse(node)}")


def option_of(call, function, package):
    words = {keyword.arg: keyword.value for keyword in call.keywords}
    spellings = [argument.value for argument in call.args]
    action = constant(words["action"]) if "action" in words else "store"
    option = {"spellings": spellings, "action": action, "type": constant(words["type"]) if "type" in words else None,
              "default": constant(words["default"]) if "default" in words else None}
    if "choices" in words:
        option["choices"] = choices_of(words["choices"], function, package)
    if action in ("env", "check_env"):
        long_name = next(spelling for spelling in spellings if spelling.startswith("--"))
        option["variable"] = "PET_" + long_name[2:].replace("-", "_").upper()
    return option


def compared_texts(tree, function, name):
    """The texts that a function compares its variable `name` with."""
    body = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function)
    return sorted({node.comparators[0].value for node in ast.walk(body) if isinstance(node, ast.Compare)
                   and ast.unparse(node.left) == name and isinstance(node.comparators[0], ast.Constant)})


def first_arguments(trees, names):
    """The literal first arguments of the calls of functions or methods with one of these names."""
    found = set()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args and f".{ast.unparse(node.func)}".endswith(tuple(f".{name}" for name in names)):
                if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
                    found.add(node.args[0].value)
    return sorted(found)


def names_in(trees, is_table):
    """The literal names with which a mapping is read: table["NAME"], "NAME" in table, table.get("NAME")."""
    found = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        name = None
        if isinstance(node, ast.Subscript) and is_table(ast.unparse(node.value)):
            name = node.slice
        elif isinstance(node, ast.Compare) and is_table(ast.unparse(node.comparators[0])):
            name = node.left
        elif isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Attribute) and node.func.attr.startswith("get"):
            name = node.args[0] if is_table(ast.unparse(node.func.value)) else None
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            found.add(name.value)
    return found


def rendezvous_settings(trees):
    """What the rendezvous of all kinds look for in --rdzv_conf. Some times are looked for by _get_timeout(params, "NAME")."""
    found = names_in(trees, {"params", "params.config", "rdzv_configs"}.__contains__)
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "_get_timeout":
            found.add(node.args[1].value + "_timeout")
    return sorted(found)


def launcher(package):
    run = package / "distributed/run.py"
    elastic = package / "distributed/elastic"
    tree = ast.parse(run.read_text())
    parser = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "get_args_parser")
    calls = [node for node in ast.walk(parser) if isinstance(node, ast.Call) and ast.unparse(node.func) == "parser.add_argument"]
    options = [option_of(call, parser, package) for call in calls]
    sources = [run, *sorted(elastic.rglob("*.py")), *sorted((package / "distributed/launcher").glob("*.py"))]
    trees = [ast.parse(source.read_text()) for source in sources]
    name = re.compile(r"(PET|TORCH|TORCHELASTIC)_[A-Z_]+")
    variables = sorted({node.value for each in trees for node in ast.walk(each)
                        if isinstance(node, ast.Constant) and isinstance(node.value, str) and name.fullmatch(node.value)}
                       | {text for text in first_arguments(trees, {"getenv"}) if text.isupper()}
                       | names_in(trees, {"os.environ", "environ"}.__contains__))
    rendezvous = [ast.parse(source.read_text()) for source in sorted((elastic / "rendezvous").glob("*.py"))]
    handlers = ast.parse((elastic / "events/handlers.py").read_text())
    agent = ast.parse((elastic / "agent/server/local_elastic_agent.py").read_text())
    return {
        "options": sorted((option for option in options if option["spellings"][0].startswith("-")),
                          key=lambda option: option["spellings"][-1]),
        "nproc_per_node": compared_texts(tree, "determine_local_world_size", "nproc_per_node"),
        "rdzv_backend": first_arguments([ast.parse((elastic / "rendezvous/registry.py").read_text())], {"register"}),
        "rdzv_conf": rendezvous_settings(rendezvous),
        "event_log_handler": sorted(key.value for node in ast.walk(handlers) if isinstance(node, ast.Dict) for key in node.keys),
        "template": sorted({keyword.arg for node in ast.walk(agent) if isinstance(node, ast.Call)
                            and ast.unparse(node.func).endswith("safe_substitute") for keyword in node.keywords}),
        "variables": variables,
    }


PARTS = {"launcher": launcher}


def text_of(table):
    """One option, or one list, in a line, so that a difference is read at once."""
    lines = []
    for name, value in table.items():
        whole = json.dumps(value)
        if value and isinstance(value[0], dict):
            whole = "[\n    " + ",\n    ".join(json.dumps(each) for each in value) + "\n  ]"
        lines.append(f"  {json.dumps(name)}: {whole}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--write", type=pathlib.Path)
    arguments = parser.parse_args()
    text = text_of(PARTS[arguments.part](arguments.folder))
    if arguments.write:
        arguments.write.write_text(text)
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
