// Which attributes of TorchScript's modules are parameters or buffers, from the code beside them in the file. No
// LibTorch.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

namespace ddp::pt {

/// Names of parameters and buffers by class: {"__torch__.Net": {"weight", …}}.
using ScriptClasses = std::map<std::string, std::set<std::string>>;

/// Adds the classes of one source file of an archive, whose entry is `name` below the archive's folder
/// ("code/__torch__/torch/nn/modules/linear.py"). A class that does not list both, as files of before PyTorch 1.4 have
/// it, is left out: nothing is known of its attributes. Reads lines, runs nothing.
void add_script_classes(std::string_view name, std::string_view source, ScriptClasses& classes);

}  // namespace ddp::pt
