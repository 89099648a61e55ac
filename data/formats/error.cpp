#include <utility>

#include "ddprun/data/byte_source.h"

namespace ddp {

DataError::DataError(std::filesystem::path path, const std::string& problem)
    : std::runtime_error(path.string() + ": " + problem), path_(std::move(path)) {}

}  // namespace ddp
