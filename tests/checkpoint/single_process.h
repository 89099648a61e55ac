// The group of tests that need none but their own process.
#pragma once

#include <ddprun/comm/process_group.h>

namespace ddp::test {

inline GroupHandle single_process() {
  static const auto group = init_process_group({.rank_info = RankInfo{}});
  return group;
}

}  // namespace ddp::test
