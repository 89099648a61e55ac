#include "launcher/nodes/store/memory_budget.h"

namespace launcher::store {

std::string MemoryBudget::full_message() const {
  return "the store is full: " + std::to_string(used_ >> 20) + " of " + std::to_string(limit_ >> 20) +
         " MiB are used by keys, values, and what clients have not sent or read to its end";
}

}  // namespace launcher::store
