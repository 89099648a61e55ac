#include "ddprun/data/error.h"

#include <utility>

namespace ddp {

DataError::DataError(std::filesystem::path path, const std::string& problem)
    : std::runtime_error(path.string() + ": " + problem), path_(std::move(path)) {}

}  // namespace ddp
