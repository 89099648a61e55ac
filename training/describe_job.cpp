#include <sstream>

#include "ddprun/training/start_run.h"

namespace ddp {

std::string describe_job(const GroupHandle& group, int64_t batch_size, int64_t accumulate) {
  std::ostringstream line;
  line << group.size() << (group.size() == 1 ? " rank" : " ranks") << " × batch " << batch_size << " × accumulation "
       << accumulate << " = global batch " << group.size() * batch_size * accumulate << ", device "
       << group.device().str() << ", backend " << group.backend();
  return line.str();
}

}  // namespace ddp
