// The way between a node's store proxy and the store: bytes in order, both ways, over a connection that somebody else
// keeps. Shared by who keeps it and who uses it, either of whom may go first.
#pragma once

#include <functional>
#include <string_view>

namespace launcher::store {

struct StoreChannel {
  // Set by the owner of the connection; all empty once the connection is closed.
  std::function<void(std::string_view bytes)> send{};  // at the next flush() at the latest, or when there is room
  std::function<void()> flush{};
  std::function<bool()> has_room{};  // whether more should be sent; on_room follows a "no"

  // By who uses it; all empty once nobody does.
  std::function<void(std::string_view bytes)> on_bytes{};
  std::function<void()> on_room{};
  std::function<void()> on_closed{};
};

}  // namespace launcher::store
