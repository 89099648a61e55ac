"""Lists the interface of a PyTorch release for comparisons: `torch_interface.py PART FOLDER [--write FILE]`.

PART `launcher`: the options of torchrun with their spellings, kinds, defaults and choices, the values that their code
recognizes, and the variables that torchrun and torch.distributed.elastic read. PART `library`: the public names of the
modules in MODULES, and the parameters of the functions and constructors in CALLABLES. FOLDER is the package `torch` of
an installation, or a folder with only its Python files. The tool parses the source and imports nothing, so it works
with any Python that supports the syntax of that release. To add another part of the interface, add a function to PARTS.
"""

import argparse
import ast
import json
import pathlib
import re
import sys


def constant(node):
    """Returns the value of a literal, otherwise its source text."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def enum_values(source, name):
    """Returns the values of the string enumeration `name` in a file."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return [each.value.value for each in node.body if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant)]
    raise LookupError(f"{source}: no class {name}")


def choices_of(node, function, package):
    """Returns the `choices=` of an option: a list, the list in a variable, or the values of an enumeration."""
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
    """Returns the texts that a function compares its variable `name` with."""
    body = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function)
    return sorted({node.comparators[0].value for node in ast.walk(body) if isinstance(node, ast.Compare)
                   and ast.unparse(node.left) == name and isinstance(node.comparators[0], ast.Constant)})


def first_arguments(trees, names):
    """Returns the literal first arguments of all calls of functions or methods with one of these names."""
    found = set()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args and f".{ast.unparse(node.func)}".endswith(tuple(f".{name}" for name in names)):
                if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
                    found.add(node.args[0].value)
    return sorted(found)


def names_in(trees, is_table):
    """Returns the literal keys that are read from a mapping: table["NAME"], "NAME" in table, table.get("NAME")."""
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
    """Returns the keys that all kinds of rendezvous read from --rdzv_conf. Some timeouts are read with
    _get_timeout(params, "NAME")."""
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


MODULES = [
    "torch.optim", "torch.optim.lr_scheduler", "torch.optim.swa_utils", "torch.nn.parallel", "torch.distributed",
    "torch.distributed.algorithms.ddp_comm_hooks.default_hooks", "torch.distributed.algorithms.join", "torch.distributed.optim",
    "torch.amp", "torch.nn.utils", "torch.nn.utils.parametrizations", "torch.nn.utils.parametrize", "torch.nn.utils.rnn",
    "torch.utils.checkpoint", "torch.utils.data",
]  # fmt: skip
CALLABLES = {
    "nn/parallel/distributed.py": ["torch.nn.parallel.DistributedDataParallel"],
    "nn/parallel/data_parallel.py": ["torch.nn.parallel.DataParallel"],
    "distributed/distributed_c10d.py": ["torch.distributed.init_process_group", "torch.distributed.new_group"],
    "distributed/optim/zero_redundancy_optimizer.py": ["torch.distributed.optim.ZeroRedundancyOptimizer"],
    **{f"optim/{file}.py": [f"torch.optim.{name}"] for name, file in (
        *((name, name.lower()) for name in ("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")),
        ("Adafactor", "_adafactor"), ("Muon", "_muon"))},
    "optim/lr_scheduler.py": [f"torch.optim.lr_scheduler.{name}" for name in (
        "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR", "LambdaLR", "LinearLR",
        "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR")],
    "optim/swa_utils.py": ["torch.optim.swa_utils.AveragedModel", "torch.optim.swa_utils.SWALR"],
    "amp/grad_scaler.py": ["torch.amp.GradScaler"],
    "amp/autocast_mode.py": ["torch.amp.autocast"],
    "nn/utils/clip_grad.py": ["torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_value_"],
    "nn/utils/parametrizations.py": ["torch.nn.utils.parametrizations.spectral_norm", "torch.nn.utils.parametrizations.weight_norm"],
    "utils/checkpoint.py": ["torch.utils.checkpoint.checkpoint"],
    "utils/data/dataloader.py": ["torch.utils.data.DataLoader"],
    "utils/data/distributed.py": ["torch.utils.data.DistributedSampler"],
    "utils/data/sampler.py": [f"torch.utils.data.{name}" for name in ("BatchSampler", "RandomSampler", "SequentialSampler", "WeightedRandomSampler")],
}  # fmt: skip


def executed(body):
    """Yields the statements of a module, including those in its `if` and `try` blocks."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try)):
            yield from executed([*node.body, *node.orelse])


def source_of(package, module):
    """Returns the file of a module, which is named as in an import."""
    path = package.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported(package, module, node):
    """Returns the names that `from M import ...` makes public in `module`; only for modules of torch."""
    source = node.module or ""
    if node.level:
        parent = module if source_of(package, module).name == "__init__.py" else module.rpartition(".")[0]
        source = ".".join(filter(None, [*parent.split(".")[: len(parent.split(".")) - node.level + 1], source]))
    if source.split(".")[0] != "torch":
        return []
    if node.names[0].name == "*":
        return public_names(package, source)
    return [each.asname or each.name for each in node.names]


def public_names(package, module):
    """Returns `__all__` of a module, or the names that it defines or imports from torch if it has no `__all__`."""
    listed, bound = [], []
    for node in executed(ast.parse(source_of(package, module).read_text()).body):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, (ast.AnnAssign, ast.AugAssign)) else []
        targets = [ast.unparse(target) for target in targets]
        if "__all__" in targets:
            listed += constant(node.value)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            targets = [node.name]
        elif isinstance(node, ast.ImportFrom):
            targets = imported(package, module, node)
        bound += [target for target in targets if target.isidentifier()]
    return sorted({name for name in listed or bound if not name.startswith("_")})


def parameters(package, name, file):
    """Returns the parameters of a function or constructor."""
    name = name.rpartition(".")[2]
    for node in ast.parse((package / file).read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            node = next(each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__")
        elif not (isinstance(node, ast.FunctionDef) and node.name == name):
            continue
        names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, node.args.vararg, *node.args.kwonlyargs, node.args.kwarg) if each]
        return [each for each in names if each != "self" and not each.startswith("_")]
    raise LookupError(f"{file}: no {name}")


def library(package):
    modules = {module: public_names(package, module) for module in MODULES}
    return modules | {f"{name}()": parameters(package, name, file) for file, names in CALLABLES.items() for name in names}


PARTS = {"launcher": launcher, "library": library}


def text_of(table):
    """Formats the table with one option or one list per line, so that differences are easy to see."""
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
