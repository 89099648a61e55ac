// The connection between a node's store proxy and the store: an ordered stream of bytes in both directions, carried by
// a control link. The link and the user share this object, and either may be destroyed first.
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
