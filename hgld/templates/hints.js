// A hint above each table that is wider than its place.
"use strict";
{
  const boxes = [...document.querySelectorAll(".scroll")];
  const look = () => boxes.forEach((box) =>
    box.previousElementSibling.classList.toggle("shown", box.scrollWidth > box.clientWidth));
  const sizes = new ResizeObserver(look);
  for (const box of boxes) for (const part of [box, box.firstElementChild]) sizes.observe(part);
  look();
}
