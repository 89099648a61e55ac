#include "comm/core/recomputation.h"

namespace ddp {
namespace {

thread_local int scopes = 0;

}  // namespace

RecomputationScope::RecomputationScope() noexcept {
  ++scopes;
}

RecomputationScope::~RecomputationScope() {
  --scopes;
}

bool thread_recomputes() noexcept {
  return scopes > 0;
}

}  // namespace ddp
