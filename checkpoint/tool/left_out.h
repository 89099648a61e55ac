// What a conversion leaves out, so that nothing is lost unsaid. No LibTorch.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/tool/tensor_source.h"

namespace ddp::tool {

/// Names of what a target lacks, by what they are: "values, which need a .pt file".
using LeftOut = std::map<std::string, std::vector<std::string>>;

/// What `source` holds beside its model and optimizers. Throws what its damaged JSON makes.
LeftOut other_contents(const TensorSource& source);

/// One line for each of `left_out`: what, how many, and the first of their names, as a terminal may have them.
std::vector<std::string> describe(const LeftOut& left_out);

}  // namespace ddp::tool
