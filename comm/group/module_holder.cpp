#include "ddprun/detail/comm/module_holder.h"

#include <stdexcept>
#include <string>

#include "base/rank_prefix.h"

namespace ddp::detail {

void refuse_to_clone(const char* wrapper) {
  throw std::logic_error(rank_prefix() + wrapper +
                         " is a wrapper and cannot be cloned: clone the model in it, wrapper->module()->clone()");
}

}  // namespace ddp::detail
