#include "comm/core/engine_text.h"

#include <cstddef>
#include <string_view>
#include <utility>

namespace ddp::detail {
namespace {

// The order matters: a text that contains another one comes first.
constexpr std::pair<std::string_view, std::string_view> kSpellings[] = {
    {"passing the keyword argument `find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`",
     "setting `DdpOptions::find_unused_parameters = true`"},
    {"passing the keyword argument `find_unused_parameters=False` to `torch.nn.parallel.DistributedDataParallel`",
     "setting `DdpOptions::find_unused_parameters = false`"},
    {"`find_unused_parameters=True`", "`DdpOptions::find_unused_parameters = true`"},
    {"find_unused_parameters=True was specified in DDP constructor",
     "DdpOptions::find_unused_parameters = true was specified"},
    {"`torch.nn.parallel.DistributedDataParallel`", "`ddp::DistributedDataParallel`"},
    {"_set_static_graph()", "`DdpOptions::static_graph = true`"},
    {"static_graph set to True", "`DdpOptions::static_graph = true`"},
    {"(e.g. list, dict, iterable)", "(e.g. vector, map, struct)"},
};

}  // namespace

std::string with_cpp_option_names(std::string text) {
  for (const auto& [python, cpp] : kSpellings) {
    for (size_t place = text.find(python); place != std::string::npos; place = text.find(python, place + cpp.size())) {
      text.replace(place, python.size(), cpp);
    }
  }
  return text;
}

}  // namespace ddp::detail
