// Abbreviated names of torchrun's long options, which Python's argparse accepts: --redirect=3, --nproc-per 2. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace launcher {

// Whether torchrun has an option of this name, which has dashes or underscores inside.
bool is_torchruns_name(std::string name);

// The full name of the one option of torchrun that begins with `beginning` (without dashes, with underscores); nothing
// when none does. Options that only ddprun has do not count. Throws UsageError, with the candidates, when several do.
std::optional<std::string> complete_torchruns_name(std::string_view beginning);

}  // namespace launcher
