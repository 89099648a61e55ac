#include "optim/option_errors.h"

#include <cmath>
#include <stdexcept>

#include "base/rank_prefix.h"

namespace ddp::optim {

void require_value(bool valid, const char* what, double value) {
  if (valid && std::isfinite(value)) return;
  throw std::invalid_argument(rank_prefix() + what + ": " + number_text(value));
}

}  // namespace ddp::optim
