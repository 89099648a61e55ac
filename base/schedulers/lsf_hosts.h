// The hosts of an LSF job, of LSB_MCPU_HOSTS: "host1 4 host2 4". Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddp::detail {

/// The hosts of such a list, each once. Throws std::invalid_argument for what is no list.
std::vector<std::string> lsf_hosts(std::string_view list);

}  // namespace ddp::detail
