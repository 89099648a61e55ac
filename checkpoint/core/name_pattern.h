// Patterns for names of parameters, as in a shell: `*` stands for any text, dots included, `?` for one character. A
// pattern without either also means everything below that name: `layer1` is `layer1` and `layer1.*`. No LibTorch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddp {

bool matches(std::string_view name, std::string_view pattern);
bool matches_any(std::string_view name, const std::vector<std::string>& patterns);

}  // namespace ddp
