#include "fsdp/deferred/replay.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace ddp::fsdp {
namespace {

using Calls = std::vector<const RecordedOperator*>;

// The calls that `last` depends on, in the order in which they were made.
Calls calls_before(const RecordedOperator& last) {
  Calls calls{&last};
  std::unordered_set<const RecordedOperator*> known{&last};
  for (size_t next = 0; next < calls.size(); ++next) {
    for (const RecordedTensor& tensor : calls[next]->tensors) {
      const RecordedOperator* earlier = tensor.last_writer.get();
      if (earlier != nullptr && known.insert(earlier).second) calls.push_back(earlier);
    }
  }
  std::ranges::sort(calls, {}, [](const RecordedOperator* call) { return call->number; });
  return calls;
}

std::map<uint64_t, size_t> last_uses(const Calls& calls) {
  std::map<uint64_t, size_t> last;
  for (size_t i = 0; i < calls.size(); ++i) {
    for (const RecordedTensor& tensor : calls[i]->tensors) last[tensor.storage] = i;
    for (const RecordedResult& result : calls[i]->results) last[result.storage] = i;
  }
  return last;
}

}  // namespace

c10::Storage replay(uint64_t storage, const std::shared_ptr<const RecordedOperator>& last_writer) {
  const Calls calls = calls_before(*last_writer);
  const std::map<uint64_t, size_t> last = last_uses(calls);
  ReplayMemory memory;
  for (size_t i = 0; i < calls.size(); ++i) {
    repeat(*calls[i], memory);
    std::erase_if(memory, [&](const auto& one) { return one.first != storage && last.at(one.first) <= i; });
  }
  return std::move(memory.at(storage));
}

}  // namespace ddp::fsdp
