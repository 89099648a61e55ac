// Advice of c10d's Reducer with this library's names for options.
#include "comm/core/engine_text.h"

#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

TEST_CASE("EngineText: options are spelled as in DdpOptions") {
  CHECK(with_cpp_option_names("You can enable unused parameter detection by passing the keyword argument "
                              "`find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`, and by \n"
                              "making sure all `forward` function outputs participate in calculating loss. ") ==
        "You can enable unused parameter detection by setting `DdpOptions::find_unused_parameters = true`, and by \n"
        "making sure all `forward` function outputs participate in calculating loss. ");
  CHECK(
      with_cpp_option_names(
          "you can disable unused parameter detection by passing the keyword argument "
          "`find_unused_parameters=False` to `torch.nn.parallel.DistributedDataParallel`. If unused") ==
      "you can disable unused parameter detection by setting `DdpOptions::find_unused_parameters = false`. If unused");
  CHECK(with_cpp_option_names("Since `find_unused_parameters=True` is enabled") ==
        "Since `DdpOptions::find_unused_parameters = true` is enabled");
  CHECK(with_cpp_option_names("try to use _set_static_graph() as a workaround; use _set_static_graph() as") ==
        "try to use `DdpOptions::static_graph = true` as a workaround; use `DdpOptions::static_graph = true` as");
  CHECK(with_cpp_option_names("find_unused_parameters=True was specified in DDP constructor, but") ==
        "DdpOptions::find_unused_parameters = true was specified, but");
}

TEST_CASE("EngineText: other texts stay as they are") {
  for (const char* text : {"", "connection closed by peer", "find_unused_parameters", "set_static_graph() should be"}) {
    CHECK(with_cpp_option_names(text) == text);
  }
}

}  // namespace
}  // namespace ddp::detail
